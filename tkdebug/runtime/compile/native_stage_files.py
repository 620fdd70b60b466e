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

_FILES = {"gpu-ir": "gpu-ir.mlir", "llvm-ir": "llvm-ir.ll", "ptx": "kernel.ptx"}
_CUBIN_FILE = "kernel.cubin"
# Stages whose edited file takes the place of what the compiler makes.
_REPLACEABLE = ("llvm-ir", "ptx")


@dataclass(frozen=True, slots=True)
class NativeStageFiles:
    """The files of one compile: those that are written, and edited ones.

    Attributes:
        dump: writes stages; None where none are wanted.
        override: reads edited ones; None where there are none.
    """

    dump: StageDump | None
    override: StageOverride | None

    @staticmethod
    def of(src: Specialization) -> NativeStageFiles:
        """The files that the knobs ask for, if any."""
        return NativeStageFiles(StageDump.of(src), StageOverride.of(src))

    @property
    def on_snapshot(self) -> SnapshotCallback | None:
        """What is called with the GPU IR after each pass."""
        return None if self.dump is None else partial(self.dump.write_snapshot, "gpu-ir")

    @property
    def on_stage(self) -> Callable[[str, str], str | None] | None:
        """What is called with the text of each stage, and may give an edited one."""
        return None if self.dump is None and self.override is None else self._on_stage

    def _on_stage(self, stage: str, text: str) -> str | None:
        edited = None if self.override is None else self.override.read_text(_FILES[stage])
        if self.dump is not None:
            self.dump.write(_FILES[stage], text if edited is None else edited)
        return edited

    def refuse_gpu_ir(self) -> None:
        """Refuse an edited file that nothing can be done with.

        Raises:
            UnsupportedError: there is one for the GPU IR.
        """
        gpu_ir = None if self.override is None else self.override.path(_FILES["gpu-ir"])
        if gpu_ir is not None:
            raise UnsupportedError(
                f"TKDEBUG_OVERRIDE: {gpu_ir}: the GPU IR cannot be replaced "
                f"by an edited file; {', '.join(_FILES[stage] for stage in _REPLACEABLE)}, "
                f"{_CUBIN_FILE} and {TILE_IR_FILE} can"
            )

    def write_gpu_ir(self, module: Module) -> None:
        """Write the GPU IR after its passes, where it is wanted."""
        if self.dump is not None:
            self.dump.write_ir(_FILES["gpu-ir"], module)

    def final_cubin(self, cubin: bytes) -> bytes:
        """The edited cubin, where there is one; it is dumped too."""
        edited = None if self.override is None else self.override.read(_CUBIN_FILE)
        if edited is not None:
            cubin = edited
        if self.dump is not None:
            self.dump.write(_CUBIN_FILE, cubin)
        return cubin
