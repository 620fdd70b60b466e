"""What `--compiler triton` puts in place: nothing in the place of Triton, ears around it."""

from __future__ import annotations

from contextlib import ExitStack

from tkdebug.compat.in_place import InPlace
from tkdebug.compat.process_environment import Environment
from tkdebug.compat.upstream.installed import installed_triton
from tkdebug.compat.upstream.recording import UpstreamRecorded
from tkdebug.knobs import KNOBS


def install_upstream(quick: bool) -> InPlace:
    """Put an installed Triton in force as the compiler, in this process and those it starts.

    Args:
        quick: whether `do_bench` is to run once.

    Raises:
        UsageError: there is no Triton that can compile.
    """
    from tkdebug.compat import children
    from tkdebug.runtime.device.platform import platform_in_force

    installed_triton()
    with ExitStack() as undo:
        undo.enter_context(
            KNOBS.scope(mode="native", compiler="triton", quick=quick or KNOBS.quick)
        )
        undo.callback(UpstreamRecorded().restore)
        platform_in_force().announce_with_torch()
        variables = children.environment("native", KNOBS.quick, (), (), False)
        undo.callback(Environment(variables).restore)
        return InPlace(undo)
