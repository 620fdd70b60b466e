"""`tkdebug.record()`: records a part of the work of a Python that tkdebug did not start.

Responsible for beginning and ending a recorder; `instrument` records.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from tkdebug.instrument.recorder import Recorder


class Recording:
    """A recording begun by `record`: a context manager, or call its `stop`.

    Attributes:
        path: the session.
    """

    def __init__(self, recorder: Recorder, undo: ExitStack) -> None:
        self.path = recorder.path
        self._recorder = recorder
        self._undo = undo

    @property
    def error(self) -> str | None:
        """The reason why recording stopped before `stop`; None if it did not."""
        return self._recorder.error

    def flush(self) -> None:
        """Wait until the session has all events so far."""
        self._recorder.flush()

    def stop(self, exit_status: int | None = None) -> None:
        """Store everything and stop recording; a second call is a no-op."""
        self._undo.close()
        self._recorder.stop(exit_status)

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop(0 if error is None else 1)


def record(
    path: str | os.PathLike[str] = "run.tkd", *, output: bool = True, stacks: bool = False
) -> Recording:
    """Record launches, faults and output of this process from now on, as `tkdebug run` does.

    Args:
        path: the session, which replaces an older one.
        output: also record what goes through `sys.stdout` and `sys.stderr`.
        stacks: also record which line of this thread launched kernels of others, as of torch.

    Returns:
        The recording: a context manager, or call its `stop`.

    Raises:
        SessionError: the session cannot be created.
    """
    recorder = Recorder(Path(path), output=output, stacks=stacks).start()
    undo = ExitStack()
    if stacks:
        from tkdebug.compat.op_origins import op_origins

        with ExitStack() as on_failure:
            on_failure.callback(recorder.stop)
            undo.enter_context(op_origins(recorder.note_operation))
            on_failure.pop_all()
    return Recording(recorder, undo)
