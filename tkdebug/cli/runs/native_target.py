"""The architecture that kernels are compiled for without its GPU: which there are, and `run`'s.

Responsible for what is asked by `--target` and `TKDEBUG_CROSS_COMPILE`; compiling is the runtime's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tkdebug.cli.command_line.arguments import Arguments
from tkdebug.errors import UnsupportedError, UsageError
from tkdebug.fault_printing.text import counted
from tkdebug.instrument.session import Session
from tkdebug.knobs import KNOBS
from tkdebug.knobs.values import ModeName
from tkdebug.terminal_text import tell

VARIABLE = "TKDEBUG_CROSS_COMPILE"


def check_known(option: str, asked: str, also: str = "") -> None:
    """Let only architectures through that tkdebug compiles for.

    Raises:
        UsageError: `asked` is none; names those that there are, and `also`.
    """
    from tkdebug.compiler.targets import target_of, targets
    from tkdebug.compiler.targets.registered_backends import unsupported_gpu

    try:
        target_of(asked)
    except UnsupportedError:
        sentence = unsupported_gpu(asked)
        if sentence is not None:
            raise UsageError(f"{option}: {sentence}") from None
        known = ", ".join(targets())
        raise UsageError(f"{option}: got {asked!r}, expected {known}{also}") from None


def _is_unsupported_gpu(asked: str) -> bool:
    """Whether `asked` is a GPU that nothing is compiled for; if so, stderr says it."""
    from tkdebug.compiler.targets.registered_backends import unsupported_gpu
    from tkdebug.runtime.compile.cross_compilation import tell_unsupported

    if unsupported_gpu(asked) is None:
        return False
    tell_unsupported(asked)
    return True


def check_target_of_run(arguments: Arguments, mode: ModeName) -> None:
    """Check that tkdebug can compile for what `tkdebug run --target` asks for.

    Raises:
        UsageError: it cannot, or nothing is interpreted.
    """
    asked = arguments.native_target
    if asked is None:
        if KNOBS.cross_compile is not None and not _is_unsupported_gpu(KNOBS.cross_compile):
            check_known(VARIABLE, KNOBS.cross_compile)
        return
    from tkdebug.runtime.compile.cross_compilation import obstacle
    from tkdebug.runtime.device.platform import platform_in_force

    check_known("--target", asked)
    if mode == "native" or (mode == "auto" and platform_in_force().obstacle() is None):
        raise UsageError(
            f"--target {asked}: kernels are compiled for the GPU here; add --mode interpret"
        )
    reason = obstacle(asked)
    if reason is not None:
        raise UsageError(f"--target {asked}: {reason}")


@contextlib.contextmanager
def cross_compiling(asked: str | None, advises: bool = False) -> Iterator[None]:
    """Compile what is interpreted inside for `asked`, too, in child processes as well.

    With `advises` launches are looked at for advice.
    """
    if asked is None:
        yield
        return
    from tkdebug.compat.process_environment import Environment

    variables = {VARIABLE: asked, **({"TKDEBUG_ADVISE": "1"} if advises else {})}
    environment = Environment(variables)
    try:
        with KNOBS.scope(cross_compile=asked, advise=advises or KNOBS.advise):
            yield
    finally:
        environment.restore()


def tell_compiled(session: Session, asked: str, kept_as: Path | None) -> None:
    """Say where what was compiled for `asked` can be seen.

    Args:
        session: the run.
        asked: the architecture.
        kept_as: the session file, None when it is a temporary one.
    """
    from tkdebug.compiler.targets.registered_backends import backend_of, target_of

    target = target_of(asked)
    text = next(stage.name for stage in reversed(backend_of(target).stages) if not stage.is_image)
    kernels = [kernel for kernel in session.kernels() if text in kernel.stages]
    if not kernels:
        return
    where = (
        "-o FILE keeps them for `tkdebug lines` and `tkdebug passes`"
        if kept_as is None
        else f"`tkdebug lines {kept_as}` and `tkdebug passes {kept_as}` show them"
    )
    compiled = counted(len(kernels), "compiled kernel")
    tell(f"{compiled} for {target}: {where}")
