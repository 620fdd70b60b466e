"""What torch's caching allocator has given out of a GPU's memory, and what it holds back."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from tkdebug.compiler.sites.live_memory import GONE, LIVE, AddressRange
from tkdebug.runtime.device.platform import Allocations

_POOL_OF_ALL = (0, 0)
_ALLOCATED, _FREE = "active_allocated", "inactive"


def torchs_allocations(device: int) -> Allocations:
    """Of a GPU; none where another allocator is in force, which has no list of its own.

    Args:
        device: its index.
    """
    import torch

    if torch.cuda.memory.get_allocator_backend() != "native":
        return Allocations()
    segments = torch.cuda.memory.memory_snapshot(**_options())  # type: ignore[no-untyped-call]
    return allocations_of(one for one in segments if one["device"] == device)


def allocations_of(segments: Iterable[Mapping[str, Any]]) -> Allocations:
    """Of segments as a snapshot of torch's allocator has them.

    A block that waits for a stream to come by counts as live. So does all memory of a pool of its
    own: of a captured graph, tensors are freed there that its replays write to.
    """
    spans = [span for segment in segments for span in _spans(segment)]
    return Allocations(
        [span for state, span in spans if state == LIVE and span.first < span.end],
        [span for state, span in spans if state == GONE and span.first < span.end],
    )


def _spans(segment: Mapping[str, Any]) -> Iterator[tuple[int, AddressRange]]:
    at = segment["address"]
    if tuple(segment.get("segment_pool_id", _POOL_OF_ALL)) != _POOL_OF_ALL:
        yield LIVE, AddressRange(at, at + segment["total_size"])
        return
    for block in segment["blocks"]:
        end = at + block["size"]
        if block["state"] == _FREE:
            yield GONE, AddressRange(at, end)
        else:
            asked = block.get("requested_size", 0) if block["state"] == _ALLOCATED else 0
            used = at + (asked or block["size"])
            yield LIVE, AddressRange(at, used)
            yield GONE, AddressRange(used, end)
        at = end


@cache
def _options() -> dict[str, bool]:
    """What leaves out a history, where torch can."""
    import torch

    known = inspect.signature(torch.cuda.memory.memory_snapshot).parameters
    return {"include_traces": False} if "include_traces" in known else {}
