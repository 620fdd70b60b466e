"""Puts tkdebug in force in Python processes that a script starts (subprocess, spawn).

The environment says what is in force; a folder at the front of PYTHONPATH holds a `sitecustomize`
that reads it at start-up, and then runs the next `sitecustomize` on the path. A child costs next to
nothing until it imports torch or triton. Forked children need nothing: they inherit everything.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tkdebug.checks import MARKING_CHECKS, NO_CHECKS
from tkdebug.compat.after_torch import after_torch
from tkdebug.compat.replacements import COREDUMP_VARIABLE, TOLD_VARIABLE
from tkdebug.knobs import KNOBS
from tkdebug.knobs.values import MODE_NAMES, ModeName
from tkdebug.watches.in_force import WATCHES

VARIABLE = "TKDEBUG_COMPAT"
_FOLDER = Path(__file__).parent / "child"


def environment(
    mode: ModeName,
    quick: bool,
    interpret: Sequence[str],
    checks: Sequence[str],
    stand_in: bool,
) -> dict[str, str | None]:
    """Return the environment variables that put tkdebug in force in children; None deletes one."""
    paths = [str(_FOLDER), *python_path()]
    return {
        TOLD_VARIABLE: None,
        VARIABLE: "stand-in" if stand_in else "triton",
        "TKDEBUG_MODE": mode,
        "TKDEBUG_QUICK": "1" if quick else None,
        "TKDEBUG_TRITON": KNOBS.triton_version,
        "TKDEBUG_COMPILER": KNOBS.compiler,
        "TKDEBUG_INTERPRET": ",".join(interpret) or None,
        "TKDEBUG_CHECKS": ",".join(checks) or NO_CHECKS,
        "TKDEBUG_CHECK_LAUNCHES": KNOBS.check_launches,
        "TKDEBUG_INSTRUMENT": ",".join(KNOBS.instrumentations) or None,
        "TKDEBUG_PRINT_ELEMENTS": str(KNOBS.print_elements),
        "TKDEBUG_WATCH": ";".join(watch.absolute_text for watch in WATCHES.watches) or None,
        "TKDEBUG_TIMELINE": ";".join(KNOBS.timelines) or None,
        "TKDEBUG_ONLY": ",".join(KNOBS.only_kernels) or None,
        "TKDEBUG_IGNORE": ",".join(KNOBS.ignored_kinds) or None,
        "TKDEBUG_BASELINE": None if KNOBS.baseline is None else str(KNOBS.baseline),
        "PYTHONPATH": os.pathsep.join(paths),
    }


def python_path() -> list[str]:
    """The PYTHONPATH of this process, without the folder that arms its children."""
    text = os.environ.get("PYTHONPATH", "")
    return [path for path in text.split(os.pathsep) if path and path != str(_FOLDER)]


def arm() -> None:
    """Put tkdebug in force in this process, a child, as its environment says."""
    kind = os.environ.get(VARIABLE)
    if kind not in ("triton", "stand-in"):
        return
    is_upstream = os.environ.get("TKDEBUG_COMPILER") == "triton"
    if is_upstream:
        from tkdebug.compat.upstream.recording import UpstreamRecorded

        UpstreamRecorded()
    else:
        from tkdebug.compat.finder import InstalledFinder

        InstalledFinder()
    if os.environ.get("TKDEBUG_SESSION"):
        from tkdebug.instrument.recorder import join_from_environment

        join_from_environment()
    if os.environ.get("TKDEBUG_TOLD_FAULTS"):
        from tkdebug.fault_printing.processes import print_from_environment

        print_from_environment()
    if os.environ.get(COREDUMP_VARIABLE):
        from tkdebug.compat.gpu_failures.crashes import watch_from_environment

        watch_from_environment()
    if kind == "stand-in" and os.environ.get("TKDEBUG_MODE") in MODE_NAMES:
        after_torch(_stand_in)
    else:
        if not is_upstream:
            _compile_natively()
        after_torch(_announce_cuda)
    checks = os.environ.get("TKDEBUG_CHECKS", "").split(",")
    if MARKING_CHECKS.intersection(checks):
        after_torch(_mark_empties)
    if "unwritten-output" in checks:
        after_torch(_watch_gaps)


def _compile_natively() -> None:
    from tkdebug.compat.inductor import CompilesNatively

    CompilesNatively()


def _announce_cuda() -> None:
    if os.environ.get("TKDEBUG_CHECK_LAUNCHES", "none") != "none":
        from tkdebug.compat.around_torch.checked_synchronisations import collect_at_synchronisations

        collect_at_synchronisations()
    from tkdebug.runtime.device.platform import platform_in_force

    platform_in_force().announce_with_torch()


def _mark_empties() -> None:
    from tkdebug.compat.around_torch.unwritten_memory import mark_empties

    if os.environ.get("TKDEBUG_MODE") != "native":
        mark_empties()


def _watch_gaps() -> None:
    from tkdebug.compat.around_torch.unwritten_memory import watch_gaps

    if os.environ.get("TKDEBUG_MODE") != "native":
        watch_gaps()


def _stand_in() -> None:
    from tkdebug.compat import cuda_standin

    if not cuda_standin.cuda_usable():
        cuda_standin.install()
