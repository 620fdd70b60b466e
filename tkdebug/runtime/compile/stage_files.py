"""A kernel's stages as files: those that TKDEBUG_DUMP wants, and edited ones of TKDEBUG_OVERRIDE.

Each specialisation has a folder of its own, of the same name in both directories, so that a dumped
file can be edited and read again. This module does not know the order of stages.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tkdebug.compiler.dialects import tt
from tkdebug.errors import IRError, UsageError
from tkdebug.knobs import KNOBS
from tkdebug.process.apart_imports import import_apart
from tkdebug.process.named_files import read_bytes
from tkdebug.runtime.compile.specialization import Specialization
from tkdebug.terminal.text import tell

if TYPE_CHECKING:
    from tkdebug.compiler.ir import Module

TILE_IR_FILE = "tile-ir.mlir"
_HASH_CHARS = 16
_MAX_BYTES = 1 << 30


def _folder(directory: Path, src: Specialization) -> Path:
    return directory / f"{src.fn.__name__}-{src.hash[:_HASH_CHARS]}"


class StageDump:
    """Writes the stages of one specialisation.

    Args:
        folder: the folder, which is made when the first stage is written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._snapshots: dict[str, int] = {}

    @staticmethod
    def of(src: Specialization) -> StageDump | None:
        """Return the dump that TKDEBUG_DUMP asks for, or None if it is not set."""
        return None if KNOBS.dump_dir is None else StageDump(_folder(KNOBS.dump_dir, src))

    def write(self, file: str, content: str | bytes) -> None:
        """Write one stage.

        Raises:
            UsageError: the directory cannot be written to.
        """
        path = self._folder / file
        data = content if isinstance(content, bytes) else content.encode()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        except OSError as error:
            raise UsageError(
                f"TKDEBUG_DUMP: cannot write {path} ({error.strerror}); "
                "name a directory to write to"
            ) from None

    def write_ir(self, file: str, module: Module) -> None:
        """Write IR with locations, so that an edited copy can take the stage's place."""
        import_apart("tkdebug.compiler.ir.printer")
        from tkdebug.compiler.ir.printer import print_module

        self.write(file, print_module(module, locations=True))

    def write_snapshot(self, stage: str, pass_name: str, module: Module) -> None:
        """Write IR as a pass left it; a pass that runs several times has a file for each."""
        name = f"{stage}-after-{pass_name}"
        count = self._snapshots[name] = self._snapshots.get(name, 0) + 1
        self.write_ir(f"{name}-{count}.mlir" if count > 1 else f"{name}.mlir", module)


class StageOverride:
    """Reads the edited stages of one specialisation, and says on stderr what is replaced.

    Args:
        kernel: the kernel's name, for messages.
        folder: the folder of edited stages, if there are any.
    """

    def __init__(self, kernel: str, folder: Path) -> None:
        self._kernel = kernel
        self._folder = folder

    @staticmethod
    def of(src: Specialization) -> StageOverride | None:
        """Return the edited stages that TKDEBUG_OVERRIDE names, or None if it is not set.

        Raises:
            UsageError: it names no directory.
        """
        directory = KNOBS.override_dir
        if directory is None:
            return None
        if not directory.is_dir():
            raise UsageError(
                f"TKDEBUG_OVERRIDE: {directory} is not a directory; copy the folders of kernels "
                "there that TKDEBUG_DUMP wrote, and edit them"
            )
        return StageOverride(src.fn.__name__, _folder(directory, src))

    def path(self, file: str) -> Path | None:
        """The edited file, or None if there is none."""
        path = self._folder / file
        return path if path.is_file() else None

    def read(self, file: str) -> bytes | None:
        """Return the content that replaces a stage, or None if nothing does.

        Raises:
            UsageError: the file cannot be read.
        """
        path = self.path(file)
        if path is None:
            return None
        try:
            content = read_bytes(path, _MAX_BYTES)
        except OSError as error:
            raise UsageError(f"TKDEBUG_OVERRIDE: cannot read {path} ({error.strerror})") from error
        tell(f"{self._kernel}: {path} takes the place of its stage")
        return content

    def read_text(self, file: str) -> str | None:
        """Return the text that replaces a stage, or None if nothing does.

        Raises:
            UsageError: the file cannot be read, or is no UTF-8 text.
        """
        content = self.read(file)
        try:
            return None if content is None else content.decode()
        except UnicodeDecodeError:
            raise UsageError(f"TKDEBUG_OVERRIDE: {self.path(file)} is not UTF-8 text") from None

    def tile_ir(self) -> Module | None:
        """The edited Tile IR that replaces the front end's, or None if there is none.

        Raises:
            UsageError: it is no Tile IR.
        """
        from tkdebug.compiler.ir.parser import parse_module
        from tkdebug.compiler.verifier import verify

        text = self.read_text(TILE_IR_FILE)
        if text is None:
            return None
        try:
            module = parse_module(text)
            if [op.name for op in module.body.operations] != [tt.Func.name]:
                raise IRError("expected one tt.func and nothing beside it")
            verify(module)
        except IRError as error:
            raise UsageError(f"TKDEBUG_OVERRIDE: {self.path(TILE_IR_FILE)}: {error}") from error
        return module
