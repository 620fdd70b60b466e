"""`tkdebug doctor`: what this machine can do, what is missing, and what to do about it.

Invariant: it never fails. Whatever a check runs into is that check's answer.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tkdebug import __version__
from tkdebug.cli.places import put_out
from tkdebug.compiler.targets.machine_parts import MachinePart, first_sentence, package
from tkdebug.terminal_style import Style, style_of
from tkdebug.terminal_text import visible_line

if TYPE_CHECKING:
    from tkdebug.plugins import Plugin


def doctor_command() -> int:
    """Print the answers; the result is the exit status: 1 when something needed is missing."""
    checks = [_guarded(name, check) for name, check in parts().items()]
    checks += _plugins()
    style = style_of(sys.stdout)
    put_out((f"{line}\n" for line in _answers(checks, style)), styled=style.is_on)
    return 1 if any(_is_missing(check) for check in checks) else 0


def _answers(checks: list[MachinePart], style: Style) -> Iterator[str]:
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark = "-      "
        if check.found:
            mark = style.good("ok") + "     "
        elif check.needed:
            mark = style.error("missing")
        yield f"{check.name.ljust(width)}  {mark}  {visible_line(check.detail)}"
    yield ""
    yield _auto_line()
    for check in checks:
        if check.advice and not check.found:
            yield f"{'needed' if check.needed else 'optional'}: {check.name}: {check.advice}"
    if not any(_is_missing(check) for check in checks):
        yield "next: tkdebug run script.py"


def _is_missing(check: MachinePart) -> bool:
    return bool(check.needed and check.advice and not check.found)


def _auto_line() -> str:
    """What `--mode auto` means on this machine, and why."""
    from tkdebug.runtime.device.platform import platform_in_force
    from tkdebug.runtime.device.torch_package import check_importable

    try:
        check_importable()
        reason = platform_in_force().obstacle()
    except Exception as error:
        return f"mode auto: no kernel can run here ({first_sentence(error)})"
    return "mode auto: native" if reason is None else f"mode auto: interpret ({reason})"


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
    return MachinePart("tkdebug", True, f"{__version__} at {Path(__file__).parent.parent}")


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
    """A line for each plugin, which is loaded for it."""
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
    """What entry points of a group have to be."""
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
            from tkdebug.hook_chain import Hook

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
    """What is asked, in this order: tkdebug, the platform, the code generators, the rest."""
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
