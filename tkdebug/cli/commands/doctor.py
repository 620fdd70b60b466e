"""`tkdebug doctor`: the abilities of this machine, what is missing, and what to do about it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tkdebug.cli.command import Command
from tkdebug.terminal.display import Style, style_of
from tkdebug.terminal.text import visible_line

if TYPE_CHECKING:
    from tkdebug.compiler.targets.machine_parts import MachinePart


class DoctorCommand(Command):
    """Shows the abilities of this machine; exits with 1 if something needed is missing."""

    help = "what this machine can do, and what is missing"
    description = (
        "Show what this machine can do, and what is missing. The exit status is 1 when something "
        "needed is missing."
    )

    def run(self, options: argparse.Namespace) -> int:
        """Print the answers; the result is the exit status."""
        # The compiler's parts: nothing that help needs.
        from tkdebug.cli.machine_parts import machine_parts
        from tkdebug.cli.places import put_out

        checks = machine_parts()
        style = style_of(sys.stdout)
        put_out((f"{line}\n" for line in _answers(checks, style)), styled=style.is_on)
        return 1 if any(_is_missing(check) for check in checks) else 0


COMMAND = DoctorCommand()


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
    """Return what `--mode auto` means on this machine, and why."""
    from tkdebug.compiler.targets.machine_parts import first_sentence
    from tkdebug.runtime.device.platform import platform_in_force
    from tkdebug.runtime.device.torch_package import check_importable

    try:
        check_importable()
        reason = platform_in_force().obstacle()
    except Exception as error:
        return f"mode auto: no kernel can run here ({first_sentence(error)})"
    return "mode auto: native" if reason is None else f"mode auto: interpret ({reason})"
