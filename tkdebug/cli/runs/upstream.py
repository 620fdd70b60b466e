"""What goes with `tkdebug run --compiler triton`, and what does not."""

from __future__ import annotations

from collections.abc import Iterator

from tkdebug.checks import NO_CHECKS
from tkdebug.cli.command_line.arguments import Arguments
from tkdebug.errors import UsageError
from tkdebug.knobs import KNOBS
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


def check_asked(arguments: Arguments) -> None:
    """Look whether the Triton that is to be asked can be.

    Raises:
        UsageError: it cannot.
    """
    from tkdebug.compat.upstream.installed import triton_of

    python = arguments.ask_triton or KNOBS.ask_triton
    if python is not None:
        option = "--ask-triton" if arguments.ask_triton else "TKDEBUG_ASK_TRITON"
        _, installed = triton_of(python, option)
        language = arguments.triton or KNOBS.triton_version
        if not installed.version.startswith(f"{language}."):
            raise UsageError(
                f"{option} {python}: it has Triton {installed.version}, and kernels are compiled "
                f"as those of {language}; add --triton, or give another Python"
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
    if arguments.ask_triton is not None:
        yield f"--ask-triton {arguments.ask_triton}"
    if arguments.triton is not None:
        yield f"--triton {arguments.triton}"
    if arguments.native_target is not None:
        yield f"--target {arguments.native_target}"
