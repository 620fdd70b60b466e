"""Activity records in memory, by the version of CUPTI that writes them, and how they are read.

Sizes and offsets are those of `cupti_activity.h` as of the versions named below. Until now each
version appended fields and left the older ones where they were, so that only sizes differ. A test
compiles the headers of several versions and compares. Invariant: a version that is not known here
has no layout; nothing guesses.

A buffer is read at once, into an array for each kind, without an object for a record. Records have
no size field: the kind gives the size, and the next record begins after it. The walk has to end
exactly at the end that CUPTI gives for the buffer's records. If it does not, or meets a kind that
was never enabled, the layout is not this library's, and nothing of the buffer is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from tkdebug.errors import TkError

if TYPE_CHECKING:
    import numpy as np

# CUpti_ActivityKind
MEMCPY = 1
MEMSET = 2
DRIVER = 4
RUNTIME = 5
CONCURRENT_KERNEL = 10
# CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx (cupti_driver_cbid.h): what our launches call.
LAUNCH_CALLBACK = 652
# Field -> (numpy's type, offset). CUpti_ActivityKernel9 to 13, CUpti_ActivityMemcpy5 to 7,
# CUpti_ActivityMemset4 and 5, CUpti_ActivityAPI.
FIELDS: Mapping[int, Mapping[str, tuple[str, int]]] = {
    CONCURRENT_KERNEL: {
        "kind": ("<u4", 0),
        "registersPerThread": ("<u2", 6),
        "start": ("<u8", 16),
        "end": ("<u8", 24),
        "deviceId": ("<u4", 40),
        "contextId": ("<u4", 44),
        "streamId": ("<u4", 48),
        "gridX": ("<i4", 52),
        "gridY": ("<i4", 56),
        "gridZ": ("<i4", 60),
        "blockX": ("<i4", 64),
        "blockY": ("<i4", 68),
        "blockZ": ("<i4", 72),
        "staticSharedMemory": ("<i4", 76),
        "dynamicSharedMemory": ("<i4", 80),
        "correlationId": ("<u4", 92),
        "name": ("<u8", 104),
        "graphNodeId": ("<u8", 144),
        "graphId": ("<u4", 156),
    },
    MEMCPY: {
        "kind": ("<u4", 0),
        "copyKind": ("<u1", 4),
        "bytes": ("<u8", 8),
        "start": ("<u8", 16),
        "end": ("<u8", 24),
        "deviceId": ("<u4", 32),
        "contextId": ("<u4", 36),
        "streamId": ("<u4", 40),
        "correlationId": ("<u4", 44),
        "graphNodeId": ("<u8", 64),
        "graphId": ("<u4", 72),
    },
    MEMSET: {
        "kind": ("<u4", 0),
        "bytes": ("<u8", 8),
        "start": ("<u8", 16),
        "end": ("<u8", 24),
        "deviceId": ("<u4", 32),
        "contextId": ("<u4", 36),
        "streamId": ("<u4", 40),
        "correlationId": ("<u4", 44),
        "graphNodeId": ("<u8", 64),
        "graphId": ("<u4", 72),
    },
    DRIVER: {
        "kind": ("<u4", 0),
        "cbid": ("<u4", 4),
        "start": ("<u8", 8),
        "end": ("<u8", 16),
        "threadId": ("<u4", 28),
        "correlationId": ("<u4", 32),
        "returnValue": ("<u4", 36),
    },
}
FIELDS = {**FIELDS, RUNTIME: FIELDS[DRIVER]}
# CUpti_ActivityMemcpyKind
COPY_KINDS: Mapping[int, str] = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """The sizes in bytes of the records of some versions.

    Attributes:
        first: the least result of `cuptiGetVersion` (CUPTI_API_VERSION of `cupti_version.h`).
        last: the greatest that was looked at.
        cuda: the releases of CUDA that these are of.
        sizes: the sizes by kind.
    """

    first: int
    last: int
    cuda: str
    sizes: Mapping[int, int]


def _sizes(kernel: int, memcpy: int, memset: int) -> Mapping[int, int]:
    return {CONCURRENT_KERNEL: kernel, MEMCPY: memcpy, MEMSET: memset, DRIVER: 40, RUNTIME: 40}


# Looked at: nvidia-cuda-cupti-cu12 12.1.105 to 12.9.79, nvidia-cuda-cupti 13.0.48 to 13.5.25.
LAYOUTS = (
    Layout(18, 25, "12.1 to 12.6", _sizes(208, 88, 88)),
    Layout(26, 28, "12.8 and 12.9", _sizes(208, 96, 88)),
    Layout(130000, 130099, "13.0", _sizes(216, 96, 88)),
    Layout(130100, 130299, "13.1 and 13.2", _sizes(224, 96, 88)),
    Layout(130300, 130399, "13.3", _sizes(232, 96, 88)),
    Layout(130400, 130599, "13.4 and 13.5", _sizes(248, 112, 104)),
)


def layout_of(version: int) -> Layout | None:
    """The layout of version `version` of `cuptiGetVersion`, or None if it is not known."""
    return next((one for one in LAYOUTS if one.first <= version <= one.last), None)


@cache
def record_type(kind: int, size_bytes: int) -> np.dtype[np.void]:
    """The numpy type of the records of one kind, of that size."""
    import numpy as np

    fields = FIELDS[kind]
    return np.dtype(
        {
            "names": list(fields),
            "formats": [form for form, _ in fields.values()],
            "offsets": [offset for _, offset in fields.values()],
            "itemsize": size_bytes,
        }
    )


if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Records = npt.NDArray[np.void]

_ALIGNMENT = 8  # ACTIVITY_RECORD_ALIGNMENT of cupti_activity.h


class RecordError(TkError):
    """A buffer's contents do not have the layout."""


def records_by_kind(data: bytes, layout: Layout) -> dict[int, Records]:
    """The records of each kind, in the order in which they lie in `data`.

    Raises:
        RecordError: `data` does not have the layout.
    """
    import numpy as np

    if not data:
        return {}
    if len(data) % _ALIGNMENT:
        raise _damaged(f"{len(data)} bytes, expected a multiple of {_ALIGNMENT}", layout)
    single = _of_one_kind(data, layout)
    if single is not None:
        return single
    units = np.frombuffer(data, np.uint64)
    offsets = _offsets(data, layout)
    kinds = units[offsets] & 0xFFFFFFFF
    found: dict[int, Records] = {}
    for kind in np.unique(kinds).tolist():
        size_bytes = layout.sizes[kind]
        places = offsets[kinds == kind][:, None] + np.arange(size_bytes // _ALIGNMENT)
        found[kind] = units[places].view(record_type(kind, size_bytes))[:, 0]
    return found


def _of_one_kind(data: bytes, layout: Layout) -> dict[int, Records] | None:
    """Return the records of a buffer of one kind, as most are, without a walk; None for others."""
    import numpy as np

    kind = int.from_bytes(data[:4], "little")
    size_bytes = layout.sizes.get(kind)
    if size_bytes is None or len(data) % size_bytes:
        return None
    records = np.frombuffer(data, record_type(kind, size_bytes))
    return {kind: records} if bool((records["kind"] == kind).all()) else None


def _offsets(data: bytes, layout: Layout) -> npt.NDArray[np.int64]:
    """Return the offsets of the records, in units of 8 bytes."""
    import numpy as np

    # Every record begins on 8 bytes, with its kind in the first four.
    words = memoryview(data).cast("I")
    steps = {kind: size_bytes // 4 for kind, size_bytes in layout.sizes.items()}
    found: list[int] = []
    note = found.append
    at, end = 0, len(words)
    try:
        while at < end:
            note(at)
            at += steps[words[at]]
    except KeyError as error:
        raise _damaged(f"kind {error} at byte {4 * at} of {len(data)}", layout) from None
    if at != end:
        raise _damaged(f"the last record ends at byte {4 * at} of {len(data)}", layout)
    return np.array(found, np.int64) // 2


def _damaged(what: str, layout: Layout) -> RecordError:
    return RecordError(f"CUPTI's records are not those of CUDA {layout.cuda}: {what}")
