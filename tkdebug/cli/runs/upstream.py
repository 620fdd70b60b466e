"""What goes with `tkdebug run --compiler triton`, and what does not."""

from __future__ import annotations

from collections.abc import Iterator

from tkdebug.checks import NO_CHECKS
from tkdebug.cli.command_line.arguments import Arguments
from tkdebug.errors import UsageError
from tkdebug.knobs.values import ModeName
from tkdebug.terminal_text import tell


def check_upstream(arguments: Arguments, mode: ModeName) -> None:
    """Look whether an installed Triton can compile what is asked for.

    Raises:
        UsageError: there is none that can, or tkdebug's own compiler or interpreter is asked for.
    """
    from tkdebug.compat.upstream.installed import installed_triton
    from tkdebug.runtime.device.driver import has_real_gpu

    for option in _of_tkdebug(arguments, mode):
        raise UsageError(
            f"--compiler triton: {option} is about kernels that tkdebug compiles or interprets; "
            "leave one of the two out"
        )
    installed = installed_triton()
    if not has_real_gpu():
        tell(
            f"--compiler triton: there is no GPU here; Triton {installed.version} compiles for a "
            "target that the script names (triton.compile), and launches nothing"
        )


def _of_tkdebug(arguments: Arguments, mode: ModeName) -> Iterator[str]:
    if mode == "interpret":
        yield "--mode interpret"
    for name in arguments.checks:
        if name != NO_CHECKS:
            yield f"--check {name}"
    if arguments.check_launches not in (None, "none"):
        yield f"--check-launches {arguments.check_launches}"
    for pattern in arguments.interpret:
        yield f"--interpret {pattern}"
    if arguments.triton is not None:
        yield f"--triton {arguments.triton}"
    if arguments.native_target is not None:
        yield f"--target {arguments.native_target}"
