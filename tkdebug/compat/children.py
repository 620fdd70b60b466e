"""Arming the Python processes that a script starts (subprocess, multiprocessing's spawn).

The environment says what is in force; a folder at the front of PYTHONPATH holds a `sitecustomize`
that reads it at start-up, and then runs the `sitecustomize` it stands before. A child pays next to
nothing until it imports torch or triton. Forked children need nothing: they have it all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from tkdebug.knobs import MARKING_CHECKS, MODE_NAMES, ModeName

VARIABLE = "TKDEBUG_COMPAT"
COREDUMP_VARIABLE = "TKDEBUG_COREDUMP"
# Set once a process has reported that the CPU is used, so that its children do not.
TOLD_VARIABLE = "TKDEBUG_STAND_IN_TOLD"
_FOLDER = Path(__file__).parent / "child"


def environment(
    mode: ModeName,
    quick: bool,
    interpret: Sequence[str],
    checks: Sequence[str],
    stand_in: bool,
) -> dict[str, str | None]:
    """The variables that arm children; None deletes one."""
    paths = [str(_FOLDER), *_python_path()]
    return {
        TOLD_VARIABLE: None,
        VARIABLE: "stand-in" if stand_in else "triton",
        "TKDEBUG_MODE": mode,
        "TKDEBUG_QUICK": "1" if quick else None,
        "TKDEBUG_INTERPRET": ",".join(interpret) or None,
        "TKDEBUG_CHECKS": ",".join(checks) or None,
        "PYTHONPATH": os.pathsep.join(paths),
    }


def _python_path() -> list[str]:
    text = os.environ.get("PYTHONPATH", "")
    return [path for path in text.split(os.pathsep) if path and path != str(_FOLDER)]


class Environment:
    """Variables of this process changed until `restore`."""

    def __init__(self, changes: Mapping[str, str | None]) -> None:
        self._before = {name: os.environ.get(name) for name in changes}
        self._set(changes)

    def restore(self) -> None:
        """Put the variables back."""
        self._set(self._before)

    @staticmethod
    def _set(values: Mapping[str, str | None]) -> None:
        for name, value in values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def arm() -> None:
    """Put in force in this process, a child, what its environment says."""
    kind = os.environ.get(VARIABLE)
    if kind not in ("triton", "stand-in"):
        return
    from tkdebug.compat.finder import InstalledFinder

    InstalledFinder()
    if os.environ.get("TKDEBUG_SESSION"):
        from tkdebug.instrument.recorder import join_from_environment

        join_from_environment()
    if os.environ.get("TKDEBUG_TOLD_FAULTS"):
        from tkdebug.fault_teller import tell_from_environment

        tell_from_environment()
    if os.environ.get(COREDUMP_VARIABLE):
        from tkdebug.compat.gpu_crashes import watch_from_environment

        watch_from_environment()
    if kind == "stand-in" and os.environ.get("TKDEBUG_MODE") in MODE_NAMES:
        after_torch(_stand_in)
    else:
        _compile_eagerly()
    checks = os.environ.get("TKDEBUG_CHECKS", "").split(",")
    if MARKING_CHECKS.intersection(checks):
        after_torch(_mark_empties)
    if "unwritten-output" in checks:
        after_torch(_watch_gaps)


def _compile_eagerly() -> None:
    from tkdebug.compat.eager_compile import CompileRunsEagerly

    CompileRunsEagerly()


def _mark_empties() -> None:
    from tkdebug.compat.marked_empties import mark_empties

    if os.environ.get("TKDEBUG_MODE") != "native":
        mark_empties()


def _watch_gaps() -> None:
    from tkdebug.compat.watched_gaps import watch_gaps

    if os.environ.get("TKDEBUG_MODE") != "native":
        watch_gaps()


def _stand_in() -> None:
    from tkdebug.compat import cuda_standin

    if not cuda_standin.cuda_usable():
        cuda_standin.install()


def after_torch(action: Callable[[], None]) -> None:
    """Call `action` once torch is imported: now, or at the end of its import."""
    if "torch" in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _TorchWatcher(action))


class _TorchWatcher(MetaPathFinder):
    """Finds torch as the others would, and has the action called when it is loaded."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """The spec of torch with our loader around its own; None for every other module."""
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _WatchedLoader(spec.loader, self._action)
        return spec


class _WatchedLoader(Loader):
    def __init__(self, loader: Loader, action: Callable[[], None]) -> None:
        self._loader = loader
        self._action = action

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # torch reads its own loader (resources, pickling of packages): it must find the real one.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._action()
