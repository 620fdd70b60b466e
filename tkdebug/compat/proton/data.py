"""`proton.data`: what a session has measured so far."""

from __future__ import annotations

from tkdebug.compat.proton.profile import check_session, device_facts
from tkdebug.errors import UnsupportedError
from tkdebug.instrument.profiling.files import hatchet
from tkdebug.instrument.profiling.profiler import PROFILER


def get(session: int | None = 0, phase: int = 0) -> list[dict[str, object]] | None:
    """The tree of a session and its devices, as in a .hatchet file; waits for its launches.

    Raises:
        ProfileError: there is no such session.
        UnsupportedError: of a phase that is not the first.
    """
    if session is None:
        return None
    check_session(session, "retrieved")
    if phase:
        raise UnsupportedError(
            f"proton.data.get: tkdebug's sessions have one phase, 0; got {phase}"
        )
    PROFILER.settle()
    return hatchet(PROFILER.profile(session).tree, device_facts)
