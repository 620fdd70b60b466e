"""`tkdebug doctor`: what this machine can do, what is missing, and what to do about it.

Invariant: it never fails. Whatever a check runs into is that check's answer.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tkdebug import __version__
from tkdebug.cli.places import put_out
from tkdebug.terminal_style import Style, style_of
from tkdebug.terminal_text import visible_line

if TYPE_CHECKING:
    from tkdebug.plugins import Plugin


@dataclass(frozen=True, slots=True)
class Check:
    """One answer. `advice` is what to do when it is not as it should be.

    Attributes:
        needed: whether something of this version does not work without it.
    """

    name: str
    found: bool
    detail: str
    advice: str = ""
    needed: bool = True


def doctor_command() -> int:
    """Print the answers; the result is the exit status: 1 when something needed is missing."""
    checks = [_guarded(name, check) for name, check in CHECKS.items()]
    checks += _plugins()
    style = style_of(sys.stdout)
    put_out((f"{line}\n" for line in _answers(checks, style)), styled=style.is_on)
    return 1 if any(_is_missing(check) for check in checks) else 0


def _answers(checks: list[Check], style: Style) -> Iterator[str]:
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


def _is_missing(check: Check) -> bool:
    return bool(check.needed and check.advice and not check.found)


def _auto_line() -> str:
    """What `--mode auto` means on this machine, and why."""
    from tkdebug.runtime.device.platform import platform_in_force
    from tkdebug.runtime.device.torch_package import check_importable

    try:
        check_importable()
        reason = platform_in_force().obstacle()
    except Exception as error:
        return f"mode auto: no kernel can run here ({_first_sentence(error)})"
    return "mode auto: native" if reason is None else f"mode auto: interpret ({reason})"


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except Exception as error:
        # A half-installed package may raise anything at import; that is what is to be told.
        text = " ".join(str(error).split())[:200]
        return Check(name, False, f"{type(error).__name__}: {text}", "install it again")


def _first_sentence(error: Exception) -> str:
    """What `error` says, without what follows its first full stop or semicolon."""
    if type(error).__name__ == "DynamicLibNotFoundError":  # cuda-pathfinder's, a page of advice
        return "its library is not installed here"
    text = " ".join(str(error).split()) or type(error).__name__
    return text.partition(". ")[0].partition("; ")[0].removesuffix(".")[:200]


def _package(name: str, purpose: str) -> Check:
    if find_spec(name) is None:
        return Check(name, False, "not installed", f"pip install {name} ({purpose})")
    return Check(name, True, f"{metadata.version(name)} ({purpose})")


def _python() -> Check:
    version = f"{platform.python_version()} at {sys.executable}"
    system = f"{platform.system()} {platform.machine()}"
    supported = (3, 10) <= sys.version_info[:2] <= (3, 13)
    return Check("python", supported, f"{version}, {system}", "use Python 3.10 to 3.13")


def _tkdebug() -> Check:
    return Check("tkdebug", True, f"{__version__} at {Path(__file__).parent.parent}")


def _torch() -> Check:
    if find_spec("torch") is None:
        return Check("torch", False, "not installed", "pip install torch (kernels run on it)")
    import torch

    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    threads = f"{torch.get_num_threads()} threads on {os.cpu_count()} CPUs"
    return Check("torch", True, f"{torch.__version__} ({build}; {threads})")


def _cuda_device() -> Check:
    name = "CUDA device"
    advice = "none needed: scripts that say device='cuda' run on the CPU under interpret"
    try:
        detail, found = _torch_devices() or _driver_devices(), True
    except Exception as error:
        detail, found = f"none usable ({_first_sentence(error)})", False
    if detail:
        return Check(name, found, detail, advice, needed=False)
    return Check(name, False, "none usable", advice, needed=False)


def _torch_devices() -> str:
    import torch

    if not torch.cuda.is_available():
        return ""
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    major, minor = torch.cuda.get_device_capability(0)
    return f"{', '.join(names)} (sm_{major}{minor})"


def _driver_devices() -> str:
    """What the driver knows of by itself, for a torch without CUDA."""
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return ""
    from cuda.bindings import driver

    if int(driver.cuInit(0)[0]) != 0:
        return ""
    error, count = driver.cuDeviceGetCount()
    if int(error) != 0 or not count:
        return ""
    names = [driver.cuDeviceGetName(128, index)[1] for index in range(count)]
    shown = ", ".join(bytes(name).split(b"\0")[0].decode("utf-8", "replace") for name in names)
    return f"{shown} (not usable by this build of torch)"


def _cuda_driver() -> Check:
    name = "CUDA driver"
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return Check(name, False, "unknown: cuda-bindings is not installed", needed=False)
    from cuda.bindings import driver

    try:
        error, version = driver.cuDriverGetVersion()
    except Exception as failure:
        return Check(name, False, f"none ({_first_sentence(failure)})", needed=False)
    if int(error) != 0:
        return Check(name, False, "none", needed=False)
    return Check(name, True, f"supports CUDA {version // 1000}.{version % 1000 // 10}")


def _nvjitlink() -> Check:
    name, later = "nvJitLink", "for native mode: pip install nvidia-nvjitlink"
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return Check(name, False, "cuda-bindings is not installed", later, needed=False)
    try:
        from cuda.bindings import nvjitlink

        major, minor = nvjitlink.version()
    except Exception as error:
        reason = _first_sentence(error)
        return Check(name, False, f"cannot be loaded ({reason})", later, needed=False)
    return Check(name, True, f"{major}.{minor}")


def _nvdisasm() -> Check:
    from tkdebug.compiler.targets.nvptx.disassembly import find_nvdisasm

    name = "nvdisasm"
    found = find_nvdisasm()
    if found is not None:
        return Check(name, True, str(found))
    return Check(
        name,
        False,
        "not found",
        "for SASS text: pip install nvidia-cuda-nvdisasm",
        needed=False,
    )


def _ptxas() -> Check:
    from tkdebug.compiler.targets.nvptx.ptxas import find_ptxas

    found = find_ptxas()
    if found is not None:
        return Check("ptxas", True, str(found))
    return Check(
        "ptxas",
        False,
        "none of CUDA 12.8 or later; nvJitLink does its work and takes more registers",
        "for faster kernels: pip install nvidia-cuda-nvcc",
        needed=False,
    )


def _upstream() -> Check:
    if find_spec("triton") is None:
        return Check("triton", False, "not installed, and not needed", needed=False)
    version = metadata.version("triton")
    return Check("triton", True, f"{version}; `tkdebug run` uses its own", needed=False)


def _knobs() -> Check:
    from tkdebug.errors import UsageError
    from tkdebug.knobs import KNOB_TABLE, KNOBS

    try:
        values = KNOBS.read_all()
    except UsageError as error:
        return Check("knobs", False, str(error), "correct or unset that variable")
    changed = [
        f"{knob.name}={values[knob.name]}"
        for knob in KNOB_TABLE
        if values[knob.name] != knob.default
    ]
    return Check("knobs", True, ", ".join(changed) or "all at their defaults")


def _plugins() -> list[Check]:
    """A line for each plugin, which is loaded for it."""
    from tkdebug.plugins import found

    return [
        _guarded(f"plugin {plugin.name}", partial(_plugin, plugin))
        for group in sorted(found())
        for plugin in found()[group]
    ]


def _plugin(plugin: Plugin) -> Check:
    name = f"plugin {plugin.name}"
    detail = f"{plugin.group}, of {plugin.distribution} {plugin.version}"
    kind = _plugin_kind(plugin.group)
    if kind is None:
        return Check(name, False, f"{detail}: this version has no such group", needed=False)
    if plugin.load(kind) is None:
        return Check(name, False, f"{detail}: skipped: {plugin.problem}", needed=False)
    return Check(name, True, detail)


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
        case "tkdebug.remarks":
            from tkdebug.advice.judging import RemarkPlugin

            return RemarkPlugin
        case _:
            return None


CHECKS: dict[str, Callable[[], Check]] = {
    "tkdebug": _tkdebug,
    "python": _python,
    "torch": _torch,
    "CUDA device": _cuda_device,
    "CUDA driver": _cuda_driver,
    "nvJitLink": _nvjitlink,
    "ptxas": _ptxas,
    "nvdisasm": _nvdisasm,
    "llvmlite": lambda: _package("llvmlite", "native code generation"),
    "textual": lambda: _package("textual", "the TUI"),
    "triton": _upstream,
    "knobs": _knobs,
}
