"""What unmodified scripts get under tkdebug: a `triton` that is tkdebug, a CUDA that is the CPU.

`install` puts both in place, in this process and in the Python processes it starts, and
`uninstall` takes both away. Adapters only: what kernels mean is the compiler's, how they run the
runtime's.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING

from tkdebug.errors import UsageError
from tkdebug.knob_values import MARKING_CHECKS, MODE_NAMES, ModeName
from tkdebug.knobs import KNOBS
from tkdebug.runtime.device.torch_package import check_installed

if TYPE_CHECKING:
    from tkdebug.compat.cuda_standin import CudaStandInInstalled
    from tkdebug.compat.upstream.installation import UpstreamInstalled

__all__ = ["Installed", "install"]


class Installed:
    """What `install` put in place.

    Attributes:
        stand_in: the CUDA stand-in, None where a CUDA device is usable or the mode is native.
    """

    def __init__(
        self,
        mode: ModeName,
        quick: bool,
        interpret: tuple[str, ...],
        checks: tuple[str, ...],
        triton: str | None = None,
    ) -> None:
        from tkdebug.compat import children
        from tkdebug.compat.finder import InstalledFinder
        from tkdebug.compat.inductor.native import CompilesNatively
        from tkdebug.compat.kernel_breakpoints import stop_at_breakpoints
        from tkdebug.compat.process_environment import Environment
        from tkdebug.runtime.device.default_checks import with_defaults
        from tkdebug.runtime.device.platform import platform_in_force

        self.stand_in: CudaStandInInstalled | None = None
        self._undo = ExitStack()
        with ExitStack() as undo:
            changes: dict[str, object] = {"mode": mode, "quick": quick or KNOBS.quick}
            if triton is not None:
                changes["triton_version"] = triton
            patterns = interpret or KNOBS.interpret_kernels
            checks = with_defaults(checks or KNOBS.checks, mode)
            undo.enter_context(KNOBS.scope(interpret_kernels=patterns, checks=checks, **changes))
            undo.callback(InstalledFinder().uninstall)
            undo.callback(stop_at_breakpoints())
            if mode != "native":
                self._stand_in(undo)
            if mode != "native" or KNOBS.check_launches != "none":
                from tkdebug.interpreter.registry import watch_addresses

                undo.callback(watch_addresses())
            if MARKING_CHECKS.intersection(checks):
                from tkdebug.compat.marked_empties import mark_empties

                undo.callback(mark_empties())
            if mode != "native":
                if "unwritten-output" in checks:
                    from tkdebug.compat.watched_gaps import watch_gaps

                    undo.callback(watch_gaps())
            if self.stand_in is None:
                undo.callback(CompilesNatively().restore)
                platform_in_force().announce_with_torch()
                looks = KNOBS.watches or KNOBS.instrumentations or KNOBS.timelines
                if KNOBS.check_launches != "none" or looks:
                    from tkdebug.compat.checked_synchronisations import collect_at_synchronisations

                    undo.callback(collect_at_synchronisations())
            variables = children.environment(
                mode, KNOBS.quick, patterns, checks, self.stand_in is not None
            )
            undo.callback(Environment(variables).restore)
            self._undo = undo.pop_all()

    def _stand_in(self, undo: ExitStack) -> None:
        from tkdebug.compat import cuda_standin

        if not cuda_standin.cuda_usable():
            self.stand_in = cuda_standin.install()
            undo.callback(self.stand_in.uninstall)

    def uninstall(self) -> None:
        """Undo everything; a second call does nothing."""
        self._undo.close()

    def __enter__(self) -> Installed:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.uninstall()


def install(
    mode: ModeName,
    quick: bool = False,
    interpret: Sequence[str] = (),
    checks: Sequence[str] = (),
    triton: str | None = None,
    compiler: str | None = None,
) -> Installed | UpstreamInstalled:
    """Make `import triton` give tkdebug, and CUDA the CPU where there is no CUDA device.

    Args:
        mode: how kernels run: auto, interpret or native.
        quick: `do_bench` runs once, sweeps take their first x value.
        interpret: patterns of kernel names that are interpreted whatever the mode.
        checks: fault kinds that interpreted kernels are checked for besides the default ones;
            `none` leaves those out.
        triton: the version of Triton to stand for, such as "3.8"; None for the knob's.
        compiler: what compiles kernels: "tkdebug", or "triton" for the Triton that is installed,
            in whose place nothing is put; None for the knob's.

    Returns:
        The installation: a context manager, or call its `uninstall`.

    Raises:
        UsageError: no such mode, there is no torch, or no Triton that can compile.
    """
    check_installed()
    if (compiler or KNOBS.compiler) == "triton":
        from tkdebug.compat.upstream.installation import UpstreamInstalled

        return UpstreamInstalled(quick)
    if mode not in MODE_NAMES:
        raise UsageError(f"mode: got {mode!r}, expected one of {', '.join(MODE_NAMES)}")
    return Installed(mode, quick, tuple(interpret), tuple(checks), triton)
