"""The meta-path finder that answers `import triton`.

Each `triton.x` is a file under `triton_modules`, loaded under its upstream name with a real spec,
so that `find_spec`, `from … import` and pickling by name work. Ours win over an installed upstream
for as long as the finder is in place. What there is no file for does not exist and says so by name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.metadata import Distribution, DistributionFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

from tkdebug.knobs import KNOBS
from tkdebug.knobs.values import TRITON_RELEASES

_PACKAGE = "triton"
_FOLDER = Path(__file__).parent / "triton_modules"


def upstream_version() -> str:
    """The release that `triton` says it is."""
    return TRITON_RELEASES[KNOBS.triton_version]


class TritonLoader(SourceFileLoader):
    """Loads one module and gives it an answer for names it does not have."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's file."""
        super().exec_module(module)
        vars(module).setdefault("__getattr__", missing_attribute(module.__name__))


def missing_attribute(module: str) -> Callable[[str], object]:
    """A module's `__getattr__` that names what is asked for and who does not have it."""

    def answer(name: str) -> object:
        raise AttributeError(
            f"module {module!r} has no attribute {name!r}: tkdebug does not provide {module}.{name}"
        )

    return answer


def _file_of(fullname: str) -> tuple[Path, bool] | None:
    """The file of module `fullname` and whether it is a package."""
    folder = _FOLDER.joinpath(*fullname.split(".")[1:])
    if (folder / "__init__.py").is_file():
        return folder / "__init__.py", True
    single = folder.with_suffix(".py")
    return (single, False) if single.is_file() else None


class TritonDistribution(Distribution):
    """What `importlib.metadata.version("triton")` reads."""

    def read_text(self, filename: str) -> str | None:
        """The METADATA file; there are no others."""
        if filename != "METADATA":
            return None
        return f"Metadata-Version: 2.1\nName: {_PACKAGE}\nVersion: {upstream_version()}\n"

    def locate_file(self, path: str | os.PathLike[str]) -> Path:
        """Where a file of the distribution would be."""
        return _FOLDER / path


class TritonFinder(MetaPathFinder):
    """Finds `triton` and its submodules, and its distribution's metadata."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """The spec of `triton…`; None for every other module.

        Raises:
            ModuleNotFoundError: there is no such module in `triton_modules`.
        """
        if fullname != _PACKAGE and not fullname.startswith(f"{_PACKAGE}."):
            return None
        found = _file_of(fullname)
        if found is None:
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: tkdebug does not provide it", name=fullname
            )
        file, is_package = found
        return spec_from_file_location(
            fullname,
            file,
            loader=TritonLoader(fullname, str(file)),
            submodule_search_locations=[str(file.parent)] if is_package else None,
        )

    def find_distributions(
        self, context: DistributionFinder.Context | None = None
    ) -> Iterable[Distribution]:
        """Triton's distribution, when it is asked for by name or all are."""
        name = None if context is None else context.name
        return [TritonDistribution()] if name in (None, _PACKAGE) else []


class InstalledFinder:
    """The finder in place; `uninstall` gives back the modules there were before."""

    def __init__(self) -> None:
        self._finder = TritonFinder()
        self._before = self._take_modules()
        sys.meta_path.insert(0, self._finder)

    def uninstall(self) -> None:
        """Take the finder and its modules out; a second call does nothing."""
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
            self._take_modules()
            sys.modules.update(self._before)

    @staticmethod
    def _take_modules() -> dict[str, ModuleType]:
        # A copy, as another thread may import meanwhile.
        loaded = list(sys.modules)
        names = [name for name in loaded if name == _PACKAGE or name.startswith(f"{_PACKAGE}.")]
        return {name: sys.modules.pop(name) for name in names}
