"""Layouts to draw from, and a machine that carries conversions out element by element."""

from __future__ import annotations

from hypothesis import strategies as st

from tkdebug.compiler.layouts import (
    LANE,
    OFFSET,
    REGISTER,
    WARP,
    Conversion,
    LinearLayout,
    NoConversion,
    RegisterMoves,
    SharedTrip,
    ShufflePlan,
    blocked,
    mma_v2,
    slice_layout,
)

# One thread's registers, by (warp, lane): the values it holds.
Registers = dict[tuple[int, int], list[int]]


def from_vectors(vectors: list[int], bits: tuple[int, int, int], shape_bits: int) -> LinearLayout:
    registers, lanes, _ = bits
    parts = (
        vectors[:registers],
        vectors[registers : registers + lanes],
        vectors[registers + lanes :],
    )
    ins = zip((REGISTER, LANE, WARP), map(tuple, parts), strict=True)
    return LinearLayout(tuple(ins), (("dim0", 1 << shape_bits),))


@st.composite
def surjective_layouts(draw: st.DrawFn, shape_bits: int, warps: int = 1) -> LinearLayout:
    """Any layout of 2^shape_bits elements: basis in any order, mixed by additions, with copies."""
    copies = draw(st.integers(0, 2))
    registers = max(0, shape_bits + copies - 5 - warps)
    total = registers + 5 + warps
    vectors = [1 << i for i in range(shape_bits)] + [0] * (total - shape_bits)
    vectors = draw(st.permutations(vectors))
    indices = st.integers(0, total - 1)
    for into, added in draw(st.lists(st.tuples(indices, indices), max_size=8)):
        if into != added:
            vectors[into] ^= vectors[added]
    return from_vectors(vectors, (registers, 5, warps), shape_bits)


def named_layouts() -> dict[str, LinearLayout]:
    """The layouts that kernels meet, of one 64 x 64 tensor in 4 warps."""
    shape = (64, 64)
    return {
        "rows": blocked((1, 8), (4, 8), (4, 1), (1, 0), shape),
        "columns": blocked((8, 1), (8, 4), (1, 4), (0, 1), shape),
        "narrow": blocked((1, 1), (1, 32), (4, 1), (1, 0), shape),
        "square": blocked((2, 2), (4, 8), (2, 2), (1, 0), shape),
        "mma": mma_v2(shape, (2, 2)),
        "mma rows": mma_v2(shape, (4, 1)),
        "wrapped": blocked((1, 8), (4, 8), (1, 4), (1, 0), shape),
    }


def row_slices() -> dict[str, LinearLayout]:
    """One-dimensional layouts with copies: what reductions leave."""
    return {name: slice_layout(parent, 1) for name, parent in named_layouts().items()}


def held(layout: LinearLayout) -> Registers:
    """Registers whose values are the packed coordinates that the layout gives them."""
    found: Registers = {}
    for indices, coordinates in layout:
        thread = found.setdefault((indices.get(WARP, 0), indices[LANE]), [])
        thread.append(layout.pack_out(coordinates))
    return found


def convert(plan: Conversion, source: LinearLayout, target: LinearLayout) -> Registers:
    """Carries the plan out on `source`'s registers."""
    before = held(source)
    match plan:
        case NoConversion():
            return before
        case RegisterMoves(sources):
            return {thread: [values[r] for r in sources] for thread, values in before.items()}
        case ShufflePlan():
            return _shuffle(plan, before, target)
        case SharedTrip():
            return _through_shared(plan, before, source, target)


def _shuffle(plan: ShufflePlan, before: Registers, target: LinearLayout) -> Registers:
    after = {thread: [-1] * target.in_size(REGISTER) for thread in before}
    for step in plan.rounds:
        for warp, lane in before:
            into = step.target_register[lane]
            if into is None:
                continue
            from_lane = step.source_lane[lane]
            offered = step.source_register[from_lane]
            assert offered is not None
            assert after[warp, lane][into] == -1, "written twice"
            after[warp, lane][into] = before[warp, from_lane][offered]
    return {thread: [values[r] for r in plan.copies] for thread, values in after.items()}


def _through_shared(
    plan: SharedTrip, before: Registers, source: LinearLayout, target: LinearLayout
) -> Registers:
    memory = [-1] * plan.buffer.in_size(OFFSET)
    store, load = (layout.invert_and_compose(plan.buffer) for layout in (source, target))

    def offsets(layout: LinearLayout, group: tuple[int, ...], warp: int, lane: int) -> list[int]:
        found = [layout.apply({REGISTER: r, LANE: lane, WARP: warp})[OFFSET] for r in group]
        assert len(found) == plan.vector
        assert found[0] % plan.vector == 0, "a vector must be aligned"
        assert found == list(range(found[0], found[0] + plan.vector)), "and in order"
        return found

    free = source.free_masks
    for (warp, lane), values in before.items():
        if warp & free.get(WARP, 0) or lane & free.get(LANE, 0):
            # It holds copies, and may skip its stores.
            continue
        for group in plan.stores:
            for offset, register in zip(offsets(store, group, warp, lane), group, strict=True):
                assert memory[offset] == -1, "written twice"
                memory[offset] = values[register]
    after = {thread: [-1] * target.in_size(REGISTER) for thread in before}
    for (warp, lane), values in after.items():
        for group in plan.loads:
            for offset, register in zip(offsets(load, group, warp, lane), group, strict=True):
                values[register] = memory[offset]
    return {thread: [values[r] for r in plan.copies] for thread, values in after.items()}
