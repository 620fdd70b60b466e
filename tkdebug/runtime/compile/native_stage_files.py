"""The stages of native code as files: which there are, and which an edited file can replace.

Where they lie, and reading and writing them, is `stage_files`'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tkdebug.errors import UnsupportedError
from tkdebug.runtime.compile.specialization import Specialization
from tkdebug.runtime.compile.stage_files import TILE_IR_FILE, StageDump, StageOverride

if TYPE_CHECKING:
    from tkdebug.compiler.ir import Module
    from tkdebug.compiler.passes.pipeline import SnapshotCallback
    from tkdebug.compiler.targets.backend import ImageCallback, NativeStage

GPU_IR_FILE = "gpu-ir.mlir"


@dataclass(frozen=True, slots=True)
class NativeStageFiles:
    """The files of one compile: those that are written, and edited ones.

    Attributes:
        stages: those after the GPU IR.
        dump: writes stages; None where none are wanted.
        override: reads edited ones; None where there are none.
    """

    stages: tuple[NativeStage, ...]
    dump: StageDump | None
    override: StageOverride | None

    @staticmethod
    def of(src: Specialization, stages: tuple[NativeStage, ...]) -> NativeStageFiles:
        """The files that the knobs ask for, if any."""
        return NativeStageFiles(stages, StageDump.of(src), StageOverride.of(src))

    @property
    def on_snapshot(self) -> SnapshotCallback | None:
        """What is called with the GPU IR after each pass."""
        return None if self.dump is None else partial(self.dump.write_snapshot, "gpu-ir")

    @property
    def on_stage(self) -> Callable[[str, str], str | None] | None:
        """What is called with the text of each stage, and may give an edited one."""
        return None if self.dump is None and self.override is None else self._on_stage

    def _on_stage(self, stage: str, text: str) -> str | None:
        file = next(known.file for known in self.stages if known.name == stage)
        edited = None if self.override is None else self.override.read_text(file)
        if self.dump is not None:
            self.dump.write(file, text if edited is None else edited)
        return edited

    def refuse_gpu_ir(self) -> None:
        """Refuse an edited file that nothing can be done with.

        Raises:
            UnsupportedError: there is one for the GPU IR.
        """
        gpu_ir = None if self.override is None else self.override.path(GPU_IR_FILE)
        if gpu_ir is not None:
            raise UnsupportedError(
                f"TKDEBUG_OVERRIDE: {gpu_ir}: the GPU IR cannot be replaced "
                f"by an edited file; {', '.join(stage.file for stage in self.stages)} "
                f"and {TILE_IR_FILE} can"
            )

    def write_gpu_ir(self, module: Module) -> None:
        """Write the GPU IR after its passes, where it is wanted."""
        if self.dump is not None:
            self.dump.write_ir(GPU_IR_FILE, module)

    @property
    def on_image(self) -> ImageCallback | None:
        """What is called with what is loaded, and may give an edited one."""
        return None if self.dump is None and self.override is None else self._on_image

    def _on_image(self, image: bytes) -> bytes:
        file = next((stage.file for stage in self.stages if stage.is_image), None)
        if file is None:
            return image
        edited = None if self.override is None else self.override.read(file)
        if edited is not None:
            image = edited
        if self.dump is not None:
            self.dump.write(file, image)
        return image
