"""The meta-path finder that answers `import triton`.

Each `triton.x` is a row of `triton_modules`, loaded under its upstream name with a real spec, so
that `find_spec`, `from … import`, `python -m` and pickling by name work. tkdebug's modules win over
an installed upstream for as long as the finder is in place. A module without a row does not exist
and says so by name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.abc import InspectLoader, MetaPathFinder, PathEntryFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, DistributionFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

from tkdebug.compat import triton_modules
from tkdebug.compat.triton_modules import MODULES, TritonModule
from tkdebug.knobs import KNOBS
from tkdebug.knobs.values import TRITON_RELEASES

_PACKAGE = "triton"
# Where a package's submodules would be, were they files.
_FOLDER = Path(__file__).with_name(_PACKAGE)


def upstream_version() -> str:
    """Return the release that `triton` says it is."""
    return TRITON_RELEASES[KNOBS.triton_version]


class TritonLoader(InspectLoader):
    """Makes modules of `triton` from their rows in the table, with a message for missing names."""

    def exec_module(self, module: ModuleType) -> None:
        """Give the module the submodules and names of its row."""
        name = module.__name__
        row = MODULES[name]
        module.__doc__ = f"`{name}`: {row.text}." if row.text else f"`{name}`."
        loads = row.loads.split()
        for submodule in loads:
            setattr(module, submodule, import_module(f"{name}.{submodule}"))
        named, mirrored = dict(_values(row.names)), [import_module(our) for our in row.mirrors]
        vars(module).update(named)
        vars(module).update(_values(row.unlisted))
        listed = [*(getattr(mirrored[-1], "__all__", ()) if mirrored else ()), *loads, *named]
        if listed:
            vars(module)["__all__"] = list(dict.fromkeys(listed))
        vars(module)["__getattr__"] = _missing_name(name, row, mirrored)
        if mirrored:
            vars(module)["__dir__"] = lambda: sorted({*vars(module), *dir(mirrored[-1])})

    def is_package(self, fullname: str) -> bool:
        """Whether the module has submodules."""
        return MODULES[fullname].is_package

    def get_source(self, fullname: str) -> str:
        """Return the text of the table."""
        return Path(triton_modules.__file__).read_text(encoding="utf-8")

    def get_code(self, fullname: str) -> CodeType:
        """Return what `python -m` runs: the module's `main`, if it has one."""
        text = f"from importlib import import_module\nmodule = import_module({fullname!r})\n"
        return compile(text + "getattr(module, 'main', int)()\n", f"<{fullname}>", "exec")


def _values(names: Mapping[str, str]) -> Iterator[tuple[str, object]]:
    """Yield the names of a row, each with its value."""
    for module, words in names.items():
        ours = import_module(module)
        for word in words.split():
            theirs, _, called = word.partition("=")
            value = getattr(ours, (called or theirs).removesuffix("()"))
            yield theirs, value() if called.endswith("()") else value


def _missing_name(
    module: str, row: TritonModule, mirrored: Sequence[ModuleType]
) -> Callable[[str], object]:
    """Return a module's `__getattr__`, which names the missing attribute and the module."""

    def answer(name: str) -> object:
        if row.mirrors_private or not name.startswith("_"):
            for ours in mirrored:
                value: object = getattr(ours, name, None)
                if value is not None:
                    return value
        raise AttributeError(
            f"module {module!r} has no attribute {name!r}: tkdebug does not provide {module}.{name}"
        )

    return answer


class _Submodules(PathEntryFinder):
    """Lists the submodules of a package of `triton` for `pkgutil`, as a path's importer.

    Args:
        folder: an entry of the package's `__path__`.

    Raises:
        ImportError: the entry is not of `triton`.
    """

    def __init__(self, folder: str) -> None:
        if not Path(folder).is_relative_to(_FOLDER):
            raise ImportError(f"{folder} is no package of {_PACKAGE}")
        self._package = ".".join([_PACKAGE, *Path(folder).relative_to(_FOLDER).parts])

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> None:
        """Find nothing: `TritonFinder` comes before any path."""

    def iter_modules(self, prefix: str = "") -> Iterator[tuple[str, bool]]:
        """Yield the names of the submodules, and whether each is a package."""
        for name, row in MODULES.items():
            package, _, last = name.rpartition(".")
            if package == self._package:
                yield prefix + last, row.is_package


class TritonDistribution(Distribution):
    """The distribution that `importlib.metadata.version("triton")` reads."""

    def read_text(self, filename: str) -> str | None:
        """Return the text of the METADATA file; None for other files."""
        if filename != "METADATA":
            return None
        return f"Metadata-Version: 2.1\nName: {_PACKAGE}\nVersion: {upstream_version()}\n"

    def locate_file(self, path: str | os.PathLike[str]) -> Path:
        """Return where a file of the distribution would be."""
        return _FOLDER / path


class TritonFinder(MetaPathFinder):
    """Finds `triton` and its submodules, and its distribution's metadata."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the spec of `triton…`; None for every other module.

        Raises:
            ModuleNotFoundError: there is no such module in `triton_modules`.
        """
        if fullname != _PACKAGE and not fullname.startswith(f"{_PACKAGE}."):
            return None
        if fullname not in MODULES:
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: tkdebug does not provide it", name=fullname
            )
        folder = _FOLDER.joinpath(*fullname.split(".")[1:])
        return spec_from_file_location(
            fullname,
            triton_modules.__file__,
            loader=TritonLoader(),
            submodule_search_locations=[str(folder)] if MODULES[fullname].is_package else None,
        )

    def find_distributions(
        self, context: DistributionFinder.Context | None = None
    ) -> Iterable[Distribution]:
        """Yield Triton's distribution if it is asked for by name, or if all are."""
        name = None if context is None else context.name
        return [TritonDistribution()] if name in (None, _PACKAGE) else []


class InstalledFinder:
    """The finder in place; `uninstall` restores the modules there were before."""

    def __init__(self) -> None:
        self._finder = TritonFinder()
        self._before = self._take_modules()
        sys.meta_path.insert(0, self._finder)
        sys.path_hooks.append(_Submodules)

    def uninstall(self) -> None:
        """Take the finder and its modules out; a second call does nothing."""
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
            sys.path_hooks.remove(_Submodules)
            self._take_modules()
            sys.modules.update(self._before)

    @staticmethod
    def _take_modules() -> dict[str, ModuleType]:
        # A copy, as another thread may import meanwhile.
        loaded = list(sys.modules)
        names = [name for name in loaded if name == _PACKAGE or name.startswith(f"{_PACKAGE}.")]
        return {name: sys.modules.pop(name) for name in names}
