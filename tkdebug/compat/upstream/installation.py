"""What `--compiler triton` puts in place: nothing in the place of Triton, ears around it."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType

from tkdebug.compat.process_environment import Environment
from tkdebug.compat.upstream.installed import installed_triton
from tkdebug.compat.upstream.recording import UpstreamRecorded
from tkdebug.knobs import KNOBS


class UpstreamInstalled:
    """An installed Triton in force as the compiler, in this process and those it starts.

    Attributes:
        stand_in: None: there is no stand-in for the CUDA device.

    Args:
        quick: whether `do_bench` is to run once.

    Raises:
        UsageError: there is no Triton that can compile.
    """

    stand_in = None

    def __init__(self, quick: bool) -> None:
        from tkdebug.compat import children
        from tkdebug.runtime.device.platform import platform_in_force

        installed_triton()
        self._undo = ExitStack()
        with ExitStack() as undo:
            undo.enter_context(
                KNOBS.scope(mode="native", compiler="triton", quick=quick or KNOBS.quick)
            )
            undo.callback(UpstreamRecorded().restore)
            platform_in_force().announce_with_torch()
            variables = children.environment("native", KNOBS.quick, (), (), False)
            undo.callback(Environment(variables).restore)
            self._undo = undo.pop_all()

    def uninstall(self) -> None:
        """Undo everything; a second call does nothing."""
        self._undo.close()

    def __enter__(self) -> UpstreamInstalled:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.uninstall()
