"""A buffer of activity records read at once: an array for each kind, no object for a record.

Records have no size field: the kind says the size, and the next record begins behind it. The walk
has to end exactly where CUPTI says that the buffer's records end. Where it does not, or meets a
kind that was never enabled, the layout is not that of this library, and nothing of the buffer is
used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tkdebug.errors import TkError
from tkdebug.instrument.cupti.layouts import Layout, record_type

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Records = npt.NDArray[np.void]

_ALIGNMENT = 8  # ACTIVITY_RECORD_ALIGNMENT of cupti_activity.h


class RecordError(TkError):
    """A buffer that does not hold what the layout says."""


def records_by_kind(data: bytes, layout: Layout) -> dict[int, Records]:
    """The records of each kind, in the order in which they lie in `data`.

    Raises:
        RecordError: `data` does not hold what the layout says.
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
    """Most buffers hold kernels alone, which need no walk."""
    import numpy as np

    kind = int.from_bytes(data[:4], "little")
    size_bytes = layout.sizes.get(kind)
    if size_bytes is None or len(data) % size_bytes:
        return None
    records = np.frombuffer(data, record_type(kind, size_bytes))
    return {kind: records} if bool((records["kind"] == kind).all()) else None


def _offsets(data: bytes, layout: Layout) -> npt.NDArray[np.int64]:
    """Where the records begin, in units of 8 bytes."""
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
