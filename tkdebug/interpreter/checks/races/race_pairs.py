"""Which accesses to the same element conflict, if nothing orders them.

Two accesses of one element conflict if one of them is a plain store, or one is an atomic and the
other is not. What makes no difference conflicts with nothing but atomics: a store of the value
that is there. Of all conflicting pairs only neighbours are listed: where each is ordered with
the next, so are the others, since an order of neighbours is one of all.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tkdebug.interpreter.checks.races.access_history import Deed, Elements

# Pairs of accesses and atomics of an element; beyond it, only the next to each other are listed.
_MOST_PAIRS = 1 << 22
_NEIGHBOURS = 2


def conflicting(elements: Elements) -> tuple[Tensor, Tensor]:
    """Positions of the earlier and of the later access of each pair.

    Args:
        elements: in order of place, then of time.
    """
    deeds = elements.deeds
    if not deeds.numel():
        return deeds, deeds
    spans = _Spans(elements)
    at = torch.arange(deeds.shape[0], device=deeds.device)
    stores = deeds == Deed.WRITE
    pairs = []
    # Each one with the last store before it, and with the first behind it.
    late = (deeds != Deed.KEEP) & (spans.last_store >= 0)
    pairs.append((spans.last_store[late], at[late]))
    early = ~stores & (spans.next_store >= 0)
    pairs.append((at[early], spans.next_store[early]))
    plain = (deeds == Deed.READ) | (deeds == Deed.KEEP)
    one, other = crossed(plain, deeds == Deed.ATOMIC, spans.begin, spans.end)
    pairs.append((torch.minimum(one, other), torch.maximum(one, other)))
    first, then = (torch.cat(column) for column in zip(*pairs, strict=True))
    return first, then


def confirmed(elements: Elements, first: Tensor, then: Tensor) -> tuple[Tensor, Tensor]:
    """For loads of what `first` stored: stores in between of the same value.

    Args:
        elements: in order of place, then of time.
        first: positions of stores.
        then: positions of loads of what these stored.

    Returns:
        Which of the pairs, and the position of a store of the same value.
    """
    again = (elements.deeds == Deed.KEEP).nonzero().reshape(-1)
    low, high = torch.searchsorted(again, first), torch.searchsorted(again, then)
    low = torch.maximum(low, high - (_MOST_PAIRS // max(1, first.shape[0]) + 1))
    counts = high - low
    which = torch.arange(first.shape[0], device=first.device).repeat_interleave(counts)
    step = torch.arange(which.shape[0], device=which.device)
    step -= (counts.cumsum(0) - counts).repeat_interleave(counts)
    return which, again[low.repeat_interleave(counts) + step]


class _Spans:
    """For each access: the stores around it, and where the accesses between these are.

    Attributes:
        last_store: position of the last store before it to the same element; -1 without one.
        next_store: of the next; -1 without one.
        begin: the first position behind `last_store`, of the same element.
        end: one past the last position before `next_store`.
    """

    def __init__(self, elements: Elements) -> None:
        places, stores = elements.places, elements.deeds == Deed.WRITE
        count = places.shape[0]
        at = torch.arange(count, device=places.device)
        heads = torch.ones_like(stores)
        torch.ne(places[1:], places[:-1], out=heads[1:])
        head = torch.where(heads, at, 0).cummax(0).values
        tails = torch.ones_like(stores)
        tails[:-1] = heads[1:]
        tail = torch.where(tails, at, count).flip(0).cummin(0).values.flip(0)
        before = torch.full_like(at, -1)
        before[1:] = torch.where(stores, at, -1).cummax(0).values[:-1]
        behind = torch.full_like(at, count)
        behind[:-1] = torch.where(stores, at, count).flip(0).cummin(0).values.flip(0)[1:]
        self.last_store = torch.where(before >= head, before, -1)
        self.next_store = torch.where(behind <= tail, behind, -1)
        self.begin = torch.where(before >= head, before + 1, head)
        self.end = torch.where(behind <= tail, behind, tail + 1)


def crossed(some: Tensor, others: Tensor, begin: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of each of `some` with each of `others` between `begin` and `end` of the former."""
    one = some.nonzero().reshape(-1)
    found = others.nonzero().reshape(-1)
    low = torch.searchsorted(found, begin[one])
    high = torch.searchsorted(found, end[one])
    if int((high - low).sum()) > _MOST_PAIRS:
        around = torch.searchsorted(found, one)
        low = torch.maximum(low, around - _NEIGHBOURS)
        high = torch.minimum(high, around + _NEIGHBOURS)
    counts = high - low
    step = torch.arange(int(counts.sum()), device=one.device)
    step -= (counts.cumsum(0) - counts).repeat_interleave(counts)
    return one.repeat_interleave(counts), found[low.repeat_interleave(counts) + step]
