"""Writes the Python function that notes the launches of a kernel.

What it calls is `packing`'s. Where machine code notes launches, it is for those that the code does
not know how to.
"""

from __future__ import annotations

from collections.abc import Sequence

from tkdebug.instrument.recording_process.ring import HEADER_BYTES, MASK, SLOT_BYTES

# Launches that are unlike the one whose tensors are known, until another one's are.
UNLIKE = 32

_NOTE = """\
def note(launch, x, y, z, stream, start_ns{parameters}):
    end_ns = now()
    try:
{facts}\
        scopes = 0 if named.is_plain else scopes_now()
    except Exception:
        odd(launch, (x, y, z), stream, start_ns, end_ns, ({values}))
        return
    number = next_number()
    if number >= ring.limit and not await_room(number):
        return
    try:
        pack(memory, {header} + (number & {mask}) * {slot}, {variant}, facts, launch, x, y, z,
             here.native_id, stream, start_ns, end_ns, scopes, flags[0]{scalars}, number + 1)
    except Exception:
        leave_empty(number)
        odd(launch, (x, y, z), stream, start_ns, end_ns, ({values}))
"""


_LOOKED_UP = """\
        looks = ({looks})
        facts = kept(looks)
        if facts is None:
            facts = describe(looks, ({values}))
"""
_GUARDED = """\
        is_known, facts = known[0]
        if not is_known({tensors}):
            looks = ({looks})
            facts = kept(looks)
            if facts is None:
                facts = describe(looks, ({values}))
            if not next_unlike() % {unlike}:
                know(looks, facts, ({tensors}))
"""
_LEARNT = """\
        looks = ({looks})
        facts = kept(looks)
        if facts is None:
            facts = describe(looks, ({values}))
        unlike = next_unlike()
        if unlike < {unlike} or not unlike % {unlike}:
            learn(looks, facts, ({tensors}))
"""


def note_text(kinds: Sequence[str], packed: Sequence[int], variant: int, is_learnt: bool) -> str:
    """The source of `note`.

    Args:
        kinds: of the kernel's parameters.
        packed: which of them are scalars that lie in slots.
        variant: of the kernel's launches.
        is_learnt: whether there is machine code, which learns facts.
    """
    values = "".join(f"p{place}, " for place in range(len(kinds)))
    tensors = "".join(f"p{place}, " for place, kind in enumerate(kinds) if kind == "tensor")
    if is_learnt:
        facts = _LEARNT
    elif tensors and facts_are_of_tensors(kinds, packed):
        facts = _GUARDED
    else:
        facts = _LOOKED_UP
    looks = _looks_text(kinds, packed, values)
    return _NOTE.format(
        parameters="".join(f", p{place}" for place in range(len(kinds))),
        values=values,
        scalars="".join(f", p{place}" for place in packed),
        facts=facts.format(looks=looks, values=values, tensors=tensors, unlike=UNLIKE),
        header=HEADER_BYTES,
        mask=MASK,
        slot=SLOT_BYTES,
        variant=variant,
    )


def facts_are_of_tensors(kinds: Sequence[str], packed: Sequence[int]) -> bool:
    """Whether launches with tensors of the same shapes and strides have the same facts."""
    rest = [kind for place, kind in enumerate(kinds) if place not in packed]
    return {"tensor", "fixed"}.issuperset(rest)


def _looks_text(kinds: Sequence[str], packed: Sequence[int], values: str) -> str:
    """A key of a launch's arguments; it differs where they are described differently."""
    if "other" in kinds:
        # A tuple or descriptor: it takes more than a short look, and a key is held on to.
        return f"infos(({values})),"
    texts = []
    for place, kind in enumerate(kinds):
        if kind == "tensor":
            # Its element type is the kernel's.
            texts.append(f"p{place}.shape, p{place}.stride(), ")
        elif kind != "fixed" and place not in packed:
            texts.append(f"p{place}.__class__, p{place}, ")
    return "".join(texts)
