"""CUDA graphs without a GPU: `torch.cuda.CUDAGraph`, `torch.cuda.graph` and related functions.

A capture runs the work and records it (`capture`); a replay does the recorded steps again on the
same tensors, so that new values which the script has copied into inputs give new values in the
outputs. Values that the host computed during the capture are fixed, as on a GPU.

Launch hooks see launches that are captured, as in native mode, and each that a replay makes,
which native mode does not see. Faults are reported for replays only: that is when a GPU would run
the kernels.
"""

from __future__ import annotations

import itertools
import warnings
from types import TracebackType
from typing import Any, NoReturn

import torch

from tkdebug.compat.cuda_standin import streams
from tkdebug.compat.cuda_standin.capture import Capture, Step, run_steps
from tkdebug.errors import UnsupportedError
from tkdebug.runtime.launch.graph_capture import (
    CaptureError,
    capture_in_force,
    refuse_while_capturing,
)

_ERROR_MODES = ("global", "thread_local", "relaxed")
_pool_numbers = itertools.count(1)


def graph_pool_handle() -> tuple[int, int]:
    """A memory pool's name; each graph of the stand-in keeps its memory to itself."""
    return (0, next(_pool_numbers))


def is_current_stream_capturing() -> bool:
    """Whether this thread captures a graph."""
    return capture_in_force() is not None


class CudaGraph:
    """The stand-in's `torch.cuda.CUDAGraph`."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._keep_graph = keep_graph
        self._capture: Capture | None = None
        self._steps: list[Step] | None = None
        self._pool: tuple[int, int] | None = None
        self._generators: list[torch.Generator] = []

    def capture_begin(
        self,
        pool: tuple[int, int] | None = None,
        capture_error_mode: str = "global",
        check_input_liveness: bool = False,
    ) -> None:
        """Record the work of this thread from now on.

        Raises:
            CaptureError: a graph is being captured already, this one has been, or the current
                stream is the default stream.
        """
        if capture_error_mode not in _ERROR_MODES:
            raise RuntimeError(
                "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got "
                f"{capture_error_mode}"
            )
        refuse_while_capturing(
            "another capture begins", "end the first one, and replay graphs one after the other"
        )
        if self._steps is not None or self._capture is not None:
            raise CaptureError(
                "This CUDAGraph instance already owns a captured graph. "
                "To capture a new graph, create a new instance."
            )
        if streams.current_stream().cuda_stream == 0:
            raise CaptureError(
                "CUDA graphs must be captured on a non-default stream. "
                "(However, after capture, it's ok to replay them on the default stream.)"
            )
        self._pool = pool or graph_pool_handle()
        self._capture = Capture()
        self._capture.begin(self._generators)

    def capture_end(self) -> None:
        """Stop recording.

        Raises:
            CaptureError: no capture was begun here, or something was refused since.
        """
        capture = self._capture
        if capture is None or capture_in_force() is not capture:
            raise CaptureError("Capture must end on the same stream it began on.")
        self._capture = None
        steps = capture.end()
        if capture.has_failed:
            raise CaptureError(
                "CUDA error: operation failed due to a previous error during capture"
            )
        if not steps:
            warnings.warn(
                "The CUDA Graph is empty. This usually means that the graph was attempted to be "
                "captured on wrong device or stream.",
                stacklevel=2,
            )
        self._steps = steps

    def instantiate(self) -> None:
        """Make the graph ready for replays, which it is."""
        self._captured("instantiate")

    def replay(self) -> None:
        """Do the captured work again.

        Raises:
            CaptureError: nothing was captured, or a step of it fails.
        """
        steps = self._captured("replay")
        outer = capture_in_force()
        if isinstance(outer, Capture):
            outer.include(steps)
        else:
            run_steps(steps)

    def reset(self) -> None:
        """Forget the captured steps; the graph may capture again."""
        self._steps = None

    def pool(self) -> tuple[int, int]:
        """The memory pool's name.

        Raises:
            CaptureError: nothing was captured.
        """
        if self._pool is None:
            raise CaptureError("Called CUDAGraph::pool() without a preceding successful capture.")
        return self._pool

    def register_generator_state(self, generator: torch.Generator) -> None:
        """Let the graph draw from `generator` again with each replay."""
        self._generators.append(generator)

    def enable_debug_mode(self) -> None:
        """Wanted before `debug_dump`."""

    def debug_dump(self, debug_path: str) -> NoReturn:
        """Refused: CUDA's drawing of a graph.

        Raises:
            UnsupportedError: always.
        """
        raise _unsupported("debug_dump")

    def raw_cuda_graph(self) -> NoReturn:
        """Refuse: CUDA's handle of the graph does not exist.

        Raises:
            UnsupportedError: always.
        """
        raise _unsupported("raw_cuda_graph")

    raw_cuda_graph_exec = raw_cuda_graph

    def _captured(self, call: str) -> list[Step]:
        if self._steps is None:
            raise CaptureError(f"Called CUDAGraph::{call} without a preceding successful capture.")
        return self._steps


def _unsupported(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"torch.cuda.CUDAGraph.{name} is not supported without a CUDA device; "
        "tkdebug lists the launches of each replay"
    )


class GraphScope:
    """Replaces `torch.cuda.graph(g)`: work inside is captured."""

    def __init__(
        self,
        cuda_graph: CudaGraph,
        pool: tuple[int, int] | None = None,
        stream: streams.Stream | None = None,
        capture_error_mode: str = "global",
        **options: Any,
    ) -> None:
        self.cuda_graph = cuda_graph
        self.pool = pool
        self.capture_stream = stream or streams.Stream()
        self.capture_error_mode = capture_error_mode
        self.stream_ctx = streams.StreamContext(self.capture_stream)

    def __enter__(self) -> None:
        refuse_while_capturing(
            "another capture begins", "end the first one, and replay graphs one after the other"
        )
        self.stream_ctx.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.capture_error_mode)
        except BaseException:
            self.stream_ctx.__exit__(None, None, None)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.cuda_graph.capture_end()
        except CaptureError:
            # The refusal's own text says more.
            if error is None:
                raise
        finally:
            self.stream_ctx.__exit__(kind, error, trace)
