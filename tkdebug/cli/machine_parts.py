"""The parts of this machine that tkdebug uses, for `tkdebug doctor`.

Invariant: no question fails. Whatever it runs into is its answer.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tkdebug import __version__
from tkdebug.compiler.targets.machine_parts import MachinePart, package

if TYPE_CHECKING:
    from tkdebug.plugins import Plugin


def machine_parts() -> list[MachinePart]:
    """Return all parts, and a part for each plugin, which is loaded for that."""
    return [*(_guarded(name, check) for name, check in parts().items()), *_plugins()]


def _guarded(name: str, check: Callable[[], MachinePart]) -> MachinePart:
    try:
        return check()
    except Exception as error:
        # A half-installed package may raise anything at import; the answer is its error.
        text = " ".join(str(error).split())[:200]
        return MachinePart(name, False, f"{type(error).__name__}: {text}", "install it again")


def _python() -> MachinePart:
    version = f"{platform.python_version()} at {sys.executable}"
    system = f"{platform.system()} {platform.machine()}"
    supported = (3, 10) <= sys.version_info[:2] <= (3, 13)
    return MachinePart("python", supported, f"{version}, {system}", "use Python 3.10 to 3.13")


def _tkdebug() -> MachinePart:
    return MachinePart("tkdebug", True, f"{__version__} at {Path(__file__).parents[1]}")


def _torch() -> MachinePart:
    if find_spec("torch") is None:
        return MachinePart("torch", False, "not installed", "pip install torch (kernels run on it)")
    import torch

    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    threads = f"{torch.get_num_threads()} threads on {os.cpu_count()} CPUs"
    return MachinePart("torch", True, f"{torch.__version__} ({build}; {threads})")


def _upstream() -> MachinePart:
    from tkdebug.compat.upstream.installed import version_in

    spec = find_spec("triton")
    if spec is None or not spec.origin:
        return MachinePart("triton", False, "not installed, and not needed", needed=False)
    version = version_in(Path(spec.origin).parent) or "of an unknown version"
    return MachinePart("triton", True, f"{version}; `tkdebug run` uses its own", needed=False)


def _cupti() -> MachinePart:
    from tkdebug.instrument.cupti.library import Cupti, CuptiError, find_cupti
    from tkdebug.runtime.device.platform import platform_in_force

    name = "CUPTI"
    if platform_in_force().obstacle() is not None:
        return MachinePart(name, False, "not looked for: it times kernels on a GPU", needed=False)
    try:
        found = Cupti(find_cupti())
    except CuptiError as error:
        without = "without it kernels are timed by CUDA events, and torch's are not recorded"
        return MachinePart(name, False, str(error), without, needed=False)
    return MachinePart(name, True, f"of CUDA {found.layout.cuda} at {found.path}")


def _knobs() -> MachinePart:
    from tkdebug.errors import UsageError
    from tkdebug.knobs import KNOB_TABLE, KNOBS

    try:
        values = KNOBS.read_all()
    except UsageError as error:
        return MachinePart("knobs", False, str(error), "correct or unset that variable")
    changed = [
        f"{knob.name}={values[knob.name]}"
        for knob in KNOB_TABLE
        if values[knob.name] != knob.default
    ]
    return MachinePart("knobs", True, ", ".join(changed) or "all at their defaults")


def _plugins() -> list[MachinePart]:
    """A part for each plugin, which is loaded to see whether it can be."""
    from tkdebug.plugins import found

    return [
        _guarded(f"plugin {plugin.name}", partial(_plugin, plugin))
        for group in sorted(found())
        for plugin in found()[group]
    ]


def _plugin(plugin: Plugin) -> MachinePart:
    name = f"plugin {plugin.name}"
    detail = f"{plugin.group}, of {plugin.distribution} {plugin.version}"
    kind = _plugin_kind(plugin.group)
    if kind is None:
        return MachinePart(name, False, f"{detail}: this version has no such group", needed=False)
    if plugin.load(kind) is None:
        return MachinePart(name, False, f"{detail}: skipped: {plugin.problem}", needed=False)
    return MachinePart(name, True, detail)


def _plugin_kind(group: str) -> type | None:
    """Return the class that entry points of a group have to have; None for an unknown group."""
    match group:
        case "tkdebug.passes":
            from tkdebug.compiler.passes import PassPlugin

            return PassPlugin
        case "tkdebug.renderers":
            from tkdebug.instrument.report import ReportFormat

            return ReportFormat
        case "tkdebug.checks":
            from tkdebug.interpreter.checks.plugin_checks import CheckPlugin

            return CheckPlugin
        case "tkdebug.hooks":
            from tkdebug.records.hook_chain import Hook

            return Hook
        case "tkdebug.instrumentation":
            from tkdebug.runtime.instrumentation.plugin import Instrumentation

            return Instrumentation
        case "tkdebug.remarks":
            from tkdebug.advice.judging import RemarkPlugin

            return RemarkPlugin
        case _:
            return None


def parts() -> dict[str, Callable[[], MachinePart]]:
    """Return a function for each part, by name: tkdebug, platform, code generators, the rest."""
    from tkdebug.compiler.targets.registered_backends import backends
    from tkdebug.runtime.device.platform import platform_in_force

    asked: dict[str, Callable[[], MachinePart]] = {
        "tkdebug": _tkdebug,
        "python": _python,
        "torch": _torch,
        **platform_in_force().machine_parts,
    }
    for backend in backends():
        asked.update(backend.machine_parts)
    asked["CUPTI"] = _cupti
    asked["textual"] = lambda: package("textual", "the TUI")
    return asked | {"triton": _upstream, "knobs": _knobs}
