"""Packs CUPTI's records of a buffer as the session has activities.

Responsible for which fields go where. What the records belong to is `activity_join`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from tkdebug.instrument.activities import packed_type
from tkdebug.instrument.cupti.layouts import CONCURRENT_KERNEL, COPY_KINDS, MEMCPY, MEMSET

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tkdebug.instrument.activities import Packed
    from tkdebug.instrument.cupti.parsing import Records

_KINDS = (CONCURRENT_KERNEL, MEMCPY, MEMSET)  # in the order of `ACTIVITY_KINDS`


class Part(NamedTuple):
    """Records of a round.

    Attributes:
        packed: them.
        texts: the names that they refer to.
        calls: the numbers of their calls.
        is_timed: whether CUPTI gave them times; kernels alone may have none.
        until_ns: how long they are held; 0 for a round.
    """

    packed: Packed
    texts: tuple[str, ...]
    calls: npt.NDArray[np.int64]
    is_timed: npt.NDArray[np.bool_]
    until_ns: int = 0

    def those(self, chosen: npt.NDArray[np.bool_]) -> Part | None:
        """Some of them; None if there are none."""
        if not chosen.any():
            return None
        chosen_arrays = (self.packed[chosen], self.calls[chosen], self.is_timed[chosen])
        packed, calls, is_timed = chosen_arrays
        return self._replace(packed=packed, calls=calls, is_timed=is_timed)


def packed_part(records: Mapping[int, Records], names: Mapping[int, str], offset_ns: int) -> Part:
    """The records, kernels first; copies without times are left out."""
    import numpy as np

    texts = {name: number for number, name in enumerate(dict.fromkeys(names.values()))}
    parts, calls, timed = [], [], []
    for number, kind in enumerate(_KINDS):
        found = records.get(kind)
        if found is None:
            continue
        # Both are 0 where CUPTI could not tell, such as of what had not ended when it was asked.
        is_timed = (found["start"] > 0) & (found["end"] >= found["start"])
        if kind != CONCURRENT_KERNEL:
            found, is_timed = found[is_timed], is_timed[is_timed]
        if not len(found):
            continue
        one = np.zeros(len(found), packed_type())
        one["kind"] = number
        start, end = (found[name].astype(np.int64) for name in ("start", "end"))
        one["start_ns"] = start + offset_ns
        one["duration_ns"] = np.where(is_timed, end - start, 0)
        for field, source in (("device", "deviceId"), ("context", "contextId")):
            one[field] = found[source]
        one["stream"] = found["streamId"]
        one["graph"] = found["graphId"]
        if kind == CONCURRENT_KERNEL:
            _pack_kernels(one, found, {address: texts[name] for address, name in names.items()})
        else:
            one["size_bytes"] = found["bytes"]
            _name_copies(one, found, texts, is_copy=kind == MEMCPY)
        parts.append(one)
        calls.append(found["correlationId"].astype(np.int64))
        timed.append(is_timed)
    if not parts:
        return Part(np.zeros(0, packed_type()), (), np.zeros(0, np.int64), np.zeros(0, bool))
    return Part(np.concatenate(parts), tuple(texts), np.concatenate(calls), np.concatenate(timed))


def _pack_kernels(packed: Packed, found: Records, numbers: Mapping[int, int]) -> None:
    import numpy as np

    addresses, places = np.unique(found["name"], return_inverse=True)
    packed["name"] = np.array([numbers[one] for one in addresses.tolist()], np.uint32)[places]
    for axis, letter in enumerate("XYZ"):
        packed["grid"][:, axis] = found[f"grid{letter}"]
        packed["block"][:, axis] = found[f"block{letter}"]
    packed["registers"] = found["registersPerThread"]
    packed["static_shared_bytes"] = found["staticSharedMemory"]
    packed["dynamic_shared_bytes"] = found["dynamicSharedMemory"]


def _name_copies(packed: Packed, found: Records, texts: dict[str, int], is_copy: bool) -> None:
    import numpy as np

    if not is_copy:
        packed["name"] = texts.setdefault("memset", len(texts))
        return
    kinds, places = np.unique(found["copyKind"], return_inverse=True)
    names = [COPY_KINDS.get(kind, f"copy of kind {kind}") for kind in kinds.tolist()]
    numbers = [texts.setdefault(name, len(texts)) for name in names]
    packed["name"] = np.array(numbers, np.uint32)[places]
