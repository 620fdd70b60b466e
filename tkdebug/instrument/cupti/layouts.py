"""How activity records lie in memory, by the version of CUPTI that writes them.

Sizes and offsets are those of `cupti_activity.h` as of the versions named below. Until now each
version appended fields and left the older ones where they were, so that only sizes differ. A test
compiles the headers of several versions and compares. Invariant: a version that is not known here
has no layout; nothing guesses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

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
        first: what `cuptiGetVersion` gives (CUPTI_API_VERSION of `cupti_version.h`), the least.
        last: the greatest that was looked at.
        cuda: the releases of CUDA that these are of.
        sizes: by kind.
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
    """The layout of what `cuptiGetVersion` calls `version`; None where that is not known."""
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
