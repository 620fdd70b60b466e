"""The cases of a verification: what sizes an example may have, and which inputs are tried.

Sizes are learned from the reference alone: it says which may change, and which change together.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tkdebug.verification.inputs import (
    FAR,
    INDEX_VALUES,
    LAYOUTS,
    LEAST_AXES,
    LIMITS_OF_INTEGERS,
    SIGNED,
    VALUES,
    Example,
    near_name,
    size_elems,
)
from tkdebug.verification.records import Case
from tkdebug.verification.source import Hints

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

# Tries: whether the reference takes these inputs.
Accepts = Callable[[Case], bool]
_SMALL = (6, 5, 7, 9, 10, 11, 12, 13)
_MOST_PAIRED = 8
# Sizes beside the edges of blocks.
SIZES = (
    1,
    3,
    17,
    33,
    65,
    129,
    257,
    2,
    64,
    100,
    128,
    513,
    1025,
    0,
    8,
    16,
    255,
    31,
    1000,
    2049,
    4099,
)
_MIDDLE = (37, 41, 35, 43, 39, 45, 47, 49)
_MOST_ELEMENTS = 1 << 17
_MOST_MIDDLE = 1 << 14
# Elements of inputs that are large: more programs than a grid of fixed size may have.
_MANY_ELEMENTS = 200_000
_MOST_EDGES = 10
# For a branch that did not run: how many of its condition's numbers, and elements, are tried.
_MOST_NUMBERS = 3
_MOST_REACHED = 1 << 22
_MOST_BROADCAST = 12
_MOST_HINTED = 4
_FLOATS = ("float32", "float16", "bfloat16")
_MOST_SEEDS = (1 << 20) - 1
_RANDOM_LAYOUTS = ("contiguous", "transposed", "padded-rows", "every-other", "offset")


@dataclass(frozen=True, slots=True)
class Group:
    """Sizes that change together.

    Attributes:
        places: the dimensions: pairs of a tensor's number and an axis.
        numbers: positions of numbers that have the same value.
        size: the size in the example.
        small: another size that the reference takes.
        bounds: whether integers of the example look like indices below it, or offsets up to it.
        ends: whether they look like offsets.
    """

    places: tuple[tuple[int, int], ...]
    numbers: tuple[int, ...]
    size: int
    small: int
    bounds: bool = False
    ends: bool = False


@dataclass
class Sizes:
    """The sizes of an example that may change.

    Attributes:
        base: a small case.
        ties: all places of one size together, for each size that may change so.
        groups: each may change alone.
        broadcast: each may be 1 alone, and have no other size.
        most: the largest integer in the example's tensors, -1 without any.
    """

    base: Case
    ties: list[Group] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    broadcast: list[Group] = field(default_factory=list)
    most: int = -1

    @property
    def units(self) -> list[Group]:
        """The groups of sizes that may change: ties first, which kernels seldom refuse."""
        known = {tie.places for tie in self.ties}
        return [*self.ties, *(group for group in self.groups if group.places not in known)]

    @property
    def apart(self) -> list[Group]:
        """Ties, and the groups that share no dimension with a tie."""
        tied = {place for tie in self.ties for place in tie.places}
        return [*self.ties, *(g for g in self.groups if not tied.intersection(g.places))]

    @staticmethod
    def learn(example: Case, accepts: Accepts, most: int = -1) -> Sizes:
        """Return the sizes that a reference lets change.

        Args:
            example: the case of the example.
            accepts: whether the reference takes a case.
            most: the largest integer in the example's tensors, -1 without any.
        """
        sizes = Sizes(example.renamed("small", values="normal"), most=most)
        by_value: dict[int, list[tuple[int, int]]] = {}
        for tensor, shape in enumerate(example.shapes):
            for axis, size in enumerate(shape):
                by_value.setdefault(size, []).append((tensor, axis))
        for number, (size, places) in enumerate(by_value.items()):
            equal = [
                place
                for place, value in enumerate(example.numbers)
                if type(value) is int and value == size and size > 1
            ]
            sizes._learn_value(size, places, equal, number, accepts)
        sizes._learn_broadcast(accepts)
        return sizes

    def _learn_broadcast(self, accepts: Accepts) -> None:
        """Learn which sizes may be 1 where others stay as they are."""
        alone = {group.places for group in (*self.ties, *self.groups)}
        places = [
            (tensor, axis)
            for tensor, shape in enumerate(self.base.shapes)
            for axis, size in enumerate(shape)
            if size > 1 and ((tensor, axis),) not in alone
        ]
        for place in places[:_MOST_BROADCAST]:
            group = Group((place,), (), self.base.shapes[place[0]][place[1]], 1)
            if accepts(with_size(self.base, group, 1)):
                self.broadcast.append(group)

    def _learn_value(
        self,
        size: int,
        places: Sequence[tuple[int, int]],
        numbers: Sequence[int],
        number: int,
        accepts: Accepts,
    ) -> None:
        others = _others(size, number)
        bounds, ends = size // 2 - 1 <= self.most <= size, self.most == size
        whole = Group(tuple(places), tuple(numbers), size, size, bounds, ends)
        tied = self._accepted(whole, others, accepts)
        if tied is None and numbers:
            numbers = ()
            tied = self._accepted(replace(whole, numbers=()), others, accepts)
        if tied is not None:
            self.base = with_size(self.base, tied, tied.small)
            self.ties.append(tied)
        if len(places) == 1:
            self.groups += [] if tied is None else [tied]
            return
        left = list(places)
        for count in (1, 2):
            if count == 2 and len(left) > _MOST_PAIRED:
                break
            for some in itertools.combinations(list(left), count):
                if not set(some) <= set(left) or len(left) == count:
                    continue
                some_group = Group(some, (), size, size, bounds, ends)
                found = self._accepted(some_group, others, accepts)
                if found is not None:
                    self.groups.append(found)
                    left = [place for place in left if place not in some]
        if left:
            rest = Group(tuple(left), tuple(numbers), size, size, bounds, ends)
            found = self._accepted(rest, others, accepts)
            self.groups += [] if found is None else [found]

    def fit(self, given: Case, takes: Accepts) -> None:
        """Set `base` to a small case that the kernel takes, too.

        Args:
            given: the case of the example, which the kernel takes.
            takes: whether the kernel takes a case.
        """
        case = given.renamed("small", values="normal")
        for unit in self.apart:
            for size in dict.fromkeys((unit.small, 16, 32, unit.size // 2)):
                smaller = with_size(case, unit, size)
                if 0 < size < unit.size and takes(smaller):
                    case = smaller
                    break
        self.base = case

    def _accepted(self, group: Group, others: Sequence[int], accepts: Accepts) -> Group | None:
        now = size_of(self.base, group)
        for other in others:
            if other != now and accepts(with_size(self.base, group, other)):
                return replace(group, small=other)
        return None


def size_of(case: Case, group: Group) -> int:
    """Return the size that a group has in a case."""
    tensor, axis = group.places[0]
    return case.shapes[tensor][axis]


def _others(size: int, number: int) -> list[int]:
    """Return sizes to try in place of one, small and odd ones first."""
    small = _SMALL[number % len(_SMALL)]
    tried = [small, size // 2, size // 4, 8, 16, 4, 2, size + 1, size * 2, size - 1]
    return [other for other in dict.fromkeys(tried) if other > 0 and other != size]


def with_size(case: Case, group: Group, size: int) -> Case:
    """Return a case with another size of a group."""
    shapes = [list(shape) for shape in case.shapes]
    for tensor, axis in group.places:
        shapes[tensor][axis] = size
    numbers = list(case.numbers)
    for place in group.numbers:
        numbers[place] = size
    most = case.most
    if group.bounds and size > 0:
        last = size if group.ends else size - 1
        most = last if most < 0 or group.ends else min(most, last)
    return replace(case, shapes=tuple(map(tuple, shapes)), numbers=tuple(numbers), most=most)


@dataclass
class Plan:
    """The cases that are tried: planned ones, and random ones without end.

    Args:
        example: the problem's example.
        given: the case of the example.
        sizes: the sizes that may change.
        seed: the seed of the search.
        configurations: the largest number of configurations of a tuner.
        has_weights: whether there are parameters to draw.
        hints: constants of the candidate.
        blocks: compile-time integers of its launches, which are known before the cases are.
        is_native: whether kernels run on a GPU, which has its own order of programs.
    """

    example: Example
    given: Case
    sizes: Sizes
    seed: int
    configurations: int = 0
    has_weights: bool = False
    hints: Hints = field(default_factory=Hints)
    blocks: Sequence[int] = ()
    is_native: bool = False
    middle: Case = field(init=False)

    def __post_init__(self) -> None:
        self.middle = self.sizes.base

    def planned(self) -> Iterator[Case]:
        """Yield cases by what they vary, in turn."""
        families = (
            *(self._sized(), self._laid_out(), self._typed(), self._valued(), self._run()),
            *(self._grown(), self._edged(), self._indexed()),
        )
        yield from _in_turn(families)

    def doubtful(self) -> Iterator[Case]:
        """Yield cases that a kernel may not mean to take: other ranks, mixed types, broadcasts."""
        yield from self._ranked()
        yield from self._mixed()
        if any("float" in dtype for dtype in self.given.dtypes):
            yield self.middle.renamed(f"values {FAR}", values=FAR, seed=self.seed + 741)
        if any("int" in dtype for dtype in self.given.dtypes):
            name = f"values {LIMITS_OF_INTEGERS}"
            yield self.middle.renamed(name, values=LIMITS_OF_INTEGERS, seed=self.seed + 740)
        for number, group in enumerate(self.sizes.broadcast):
            tensor, axis = group.places[0]
            case = with_size(self.middle, group, 1)
            name = f"size 1 of axis {axis} of input {tensor}, the reference broadcasts it"
            yield case.renamed(name, seed=self.seed + 700 + number)

    def _ranked(self) -> Iterator[Case]:
        """Yield cases with one axis more in front, for the tensors that have the most axes."""
        most = max((len(shape) for shape in self.middle.shapes), default=0)
        for first in (1, 2):
            shapes = tuple(
                (first, *shape) if len(shape) == most else shape for shape in self.middle.shapes
            )
            case = replace(self.middle, shapes=shapes)
            if most and size_elems(case) <= _MOST_ELEMENTS:
                yield case.renamed(f"one axis of {first} more", seed=self.seed + 720 + first)

    def _mixed(self) -> Iterator[Case]:
        """Yield cases in which one tensor alone has another float type."""
        floats = [place for place, one in enumerate(self.given.dtypes) if "float" in one]
        if floats and "float64" not in self.given.dtypes:
            dtypes = ["float64" if "float" in one else one for one in self.middle.dtypes]
            name = "dtype float64"
            yield self.middle.renamed(name, dtypes=tuple(dtypes), seed=self.seed + 729)
        for place in floats if len(floats) > 1 else ():
            dtypes = list(self.middle.dtypes)
            dtypes[place] = "float32" if dtypes[place] != "float32" else "float16"
            yield self.middle.renamed(
                f"dtype {dtypes[place]} of input {place} alone",
                dtypes=tuple(dtypes),
                seed=self.seed + 730 + place,
            )

    def _indexed(self) -> Iterator[Case]:
        """Yield other integers and bools: the reference says which it takes."""
        kinds = {dtype for dtype in self.given.dtypes if "float" not in dtype}
        for turn, values in enumerate(INDEX_VALUES if kinds else ()):
            is_of_bools = values.startswith("all ")
            if kinds - {"bool"} if not is_of_bools else "bool" in kinds:
                yield self.middle.renamed(
                    f"values {values}", values=values, seed=self.seed + 470 + turn
                )

    def _grown(self) -> Iterator[Case]:
        """Yield cases with all sizes larger at once, and with many elements."""
        units = self.sizes.apart
        for turn, most in enumerate((1 << 13, 1 << 15, _MOST_ELEMENTS)):
            yield self._all_grown(most).renamed("all sizes larger", seed=self.seed + 600 + turn)
        for number, unit in enumerate(units):
            case = self.filled(unit, _MANY_ELEMENTS)
            if case is not None:
                yield case.renamed(case.name, seed=self.seed + 620 + number)

    def _all_grown(self, most: int) -> Case:
        """Return a case in which all sizes are larger, and no two alike."""
        case = self.middle
        for step in range(1, 64):
            grown = self.middle
            for number, unit in enumerate(self.sizes.apart):
                now = size_of(self.middle, unit)
                if unit.size < 8:
                    continue
                is_odd = now not in (32, unit.size)
                grown = with_size(grown, unit, now + 16 * step + number if is_odd else now * 2)
            if size_elems(grown) > most:
                break
            case = grown
        return case

    def filled(self, unit: Group, elements: int) -> Case | None:
        """Return the small case with one size raised to about `elements`; None if it cannot be."""
        one = size_elems(with_size(self.sizes.base, unit, 1))
        per = size_elems(with_size(self.sizes.base, unit, 2)) - one
        size = (elements - one) // max(per, 1)
        if size <= 4099:
            return None
        name = f"many elements by size {size | 1} in place of {unit.size}"
        case = with_size(self.sizes.base, unit, size | 1).renamed(name)
        return case if size_elems(case) <= 2 * elements else None

    def beside(self, numbers: Sequence[int]) -> Iterator[Case]:
        """Yield cases whose size, or number of elements, is one of some numbers, or 1 more."""
        units = self.sizes.apart[:_MOST_EDGES]
        alone = self.sizes.base
        for unit in units:
            alone = with_size(alone, unit, 1)
        for number, unit in itertools.product(numbers[:_MOST_NUMBERS], units):
            for size in (number, number + 1):
                made = [with_size(base, unit, size) for base in (self.sizes.base, alone)]
                made += [case for case in [self.filled(unit, size)] if case is not None]
                for case in made:
                    if size_elems(case) <= _MOST_REACHED:
                        name = f"size {size_of(case, unit)} in place of {unit.size}"
                        yield case.renamed(name, seed=self.seed + 760)

    def _edged(self) -> Iterator[Case]:
        """Yield sizes beside the candidate's own constants, and beside its blocks."""
        edges = [size for size in self.hints.edges(self.blocks) if size not in SIZES]
        for turn, size in enumerate(edges):
            for number, unit in enumerate(self.sizes.apart[:_MOST_EDGES]):
                base = self.sizes.base if size > 64 else self.middle
                case = with_size(base, unit, size)
                if size_elems(case) <= 2 * _MOST_ELEMENTS:
                    seed = self.seed + 2000 + 20 * turn + number
                    yield case.renamed(f"size {size} in place of {unit.size}", seed=seed)

    def settle(self, takes: Accepts) -> None:
        """Set `middle`, the case from which all but sizes is varied: sizes of 35 to 49 if possible.

        Args:
            takes: whether the kernel takes a case.
        """
        case = self.sizes.base.renamed("middle sizes", seed=self.seed + 3)
        if self.has_weights:
            case = case.renamed(case.name, weights="random")
        whole = case
        for number, unit in enumerate(self.sizes.apart):
            grown = with_size(whole, unit, _MIDDLE[number % len(_MIDDLE)])
            if size_elems(grown) <= _MOST_MIDDLE and unit.size >= 8:
                whole = grown
        if takes(whole):
            self.middle = whole
            return
        for number, unit in enumerate(self.sizes.apart):
            for size in (_MIDDLE[number % len(_MIDDLE)], 32, unit.size):
                grown = with_size(case, unit, size)
                if size_elems(grown) <= _MOST_MIDDLE and unit.size >= 8 and takes(grown):
                    case = grown
                    break
        self.middle = case

    def _sized(self) -> Iterator[Case]:
        all_one = self.sizes.base
        for unit in self.sizes.apart:
            all_one = with_size(all_one, unit, 1)
        yield all_one.renamed("all sizes 1", seed=self.seed + 4)
        for turn, size in enumerate(SIZES):
            for number, group in enumerate(self.sizes.units):
                base = self.sizes.base if size > 64 else self.middle
                case = with_size(base, group, size)
                if size_elems(case) <= _MOST_ELEMENTS:
                    seed = self.seed + 100 * turn + number
                    yield case.renamed(f"size {size} in place of {group.size}", seed=seed)
                    if size == max(SIZES):  # sums of both signs are near 0 there
                        name = f"size {size} in place of {group.size}, values positive"
                        yield case.renamed(name, values="positive", seed=seed)

    def _laid_out(self) -> Iterator[Case]:
        case, count = self.middle, len(self.example.tensors)
        layouts = [one for one in LAYOUTS if one != "contiguous"]
        axes = [len(shape) for shape in case.shapes]
        for turn, layout in enumerate(layouts):
            if max(axes, default=0) >= LEAST_AXES.get(layout, 1):
                yield case.renamed(
                    f"layout {layout}", layouts=(layout,) * count, seed=self.seed + 200 + turn
                )
        # One alone: a check of another does not hide it.
        for layout, tensor in itertools.product(layouts, range(count if count > 1 else 0)):
            if axes[tensor] >= LEAST_AXES.get(layout, 1):
                one = ["contiguous"] * count
                one[tensor] = layout
                yield case.renamed(
                    f"layout {layout} of input {tensor}",
                    layouts=tuple(one),
                    seed=self.seed + 220 + tensor,
                )

    def _typed(self) -> Iterator[Case]:
        for turn, dtype in enumerate(("float16", "bfloat16", "float32")):
            dtypes = tuple(dtype if "float" in one else one for one in self.given.dtypes)
            if dtypes != self.given.dtypes:
                case = self.middle.renamed(
                    f"dtype {dtype}", dtypes=dtypes, seed=self.seed + 300 + turn
                )
                yield case
            for values in ("large", "offset", "small", "low"):
                if "16" in dtype and "float" in "".join(dtypes):
                    yield self.middle.renamed(
                        f"dtype {dtype}, values {values}",
                        dtypes=dtypes,
                        values=values,
                        seed=self.seed + 330 + turn,
                    )
        for turn, dtype in enumerate(("float16", "bfloat16")):
            dtypes = tuple(dtype if "float" in one else one for one in self.given.dtypes)
            for number, unit in enumerate(self.sizes.apart):
                for size in (16385, 4099, 2048, 1025):
                    case = with_size(self.sizes.base, unit, size)
                    if "float" in "".join(dtypes) and size_elems(case) <= _MOST_ELEMENTS:
                        name = f"dtype {dtype}, size {size} in place of {unit.size}"
                        seed = self.seed + 310 + 10 * turn + number
                        yield case.renamed(name, dtypes=dtypes, values="positive", seed=seed)
                        yield case.renamed(name, dtypes=dtypes, values="offset", seed=seed)
                        break

    def _valued(self) -> Iterator[Case]:
        if size_elems(self.given) <= _MANY_ELEMENTS:
            name = "other values in the example's sizes"
            yield self.given.renamed(name, values="normal", seed=self.seed + 460)
        unsigned = self.example.unsigned
        alone = [f"{SIGNED} {place}" for place in unsigned] if len(unsigned) > 1 else []
        for turn, values in enumerate((SIGNED, *alone) if unsigned else ()):
            name = f"values {values}"
            yield self.middle.renamed(name, values=values, seed=self.seed + 480 + turn)
        for turn, values in enumerate(VALUES):
            if values != "normal":
                yield self.middle.renamed(
                    f"values {values}", values=values, seed=self.seed + 400 + turn
                )
        if self.hints.limits:
            for turn in range(2):
                yield self.middle.renamed(
                    "values near the kernel's constants",
                    values=near_name(self.hints.limits),
                    seed=self.seed + 450 + turn,
                )

    def _run(self) -> Iterator[Case]:
        ways = [f"config {n}" for n in range(1, self.configurations)]
        if not self.is_native:
            ways += ["tuned"] if self.configurations > 1 else []
            ways += ["reversed", "padding poisoned", "one by one", "shuffled"]
        for turn, way in enumerate(ways):
            yield self.middle.renamed(way, way=way, seed=self.seed + 500 + turn)
        for turn, numbers in enumerate(self._numbers()):
            yield self.middle.renamed(
                f"numbers {', '.join(map(str, numbers))}",
                numbers=numbers,
                seed=self.seed + 520 + turn,
            )
        # Again with many programs, and several iterations of a loop.
        grown = self._all_grown(_MOST_MIDDLE)
        for turn, way in enumerate(ways if grown is not self.middle else ()):
            name = f"{way}, all sizes larger"
            yield grown.renamed(name, way=way, seed=self.seed + 560 + turn)

    def _numbers(self) -> Iterator[tuple[Any, ...]]:
        """Yield the numbers with one of them changed; those that are sizes change last."""
        middle = self.middle.numbers
        tied = {place for group in self.sizes.groups for place in group.numbers}
        for place in sorted(range(len(middle)), key=lambda place: place in tied):
            beside: list[Any] = []
            if type(middle[place]) is int:
                beside = [n + more for n in self.hints.sizes[:_MOST_HINTED] for more in (0, 1)]
            for other in dict.fromkeys([*other_numbers(middle[place]), *beside]):
                yield (*middle[:place], other, *middle[place + 1 :])

    def drawn(self) -> SearchStrategy[Case]:
        """Return a strategy of random cases: sizes, layouts, types and values vary at once."""
        from hypothesis import strategies as st

        values = ("normal", "positive", "large", "integers", "negative")

        @st.composite
        def cases(draw: Callable[[Any], Any]) -> Case:
            case = self.sizes.base
            taken: list[int] = []
            for group in draw(st.sampled_from((self.sizes.apart, self.sizes.groups))):
                now = size_of(case, group)
                # Some kernels are wrong only where two sizes are equal.
                sizes = (now, *taken), SIZES, SIZES, (group.size, 2 * group.size)
                size = draw(st.sampled_from(draw(st.sampled_from(sizes))))
                grown = with_size(case, group, size)
                if size != now and size_elems(grown) <= _MOST_ELEMENTS // 4:
                    case = grown
                taken.append(size_of(case, group))
            other, drawn = draw(st.sampled_from(("", *_FLOATS))), draw(st.sampled_from(values))
            return case.renamed(
                "random",
                values=SIGNED if drawn == "normal" and self.example.unsigned else drawn,
                layouts=tuple(draw(st.sampled_from(_RANDOM_LAYOUTS)) for _ in case.shapes),
                dtypes=tuple(other if other and "float" in one else one for one in case.dtypes),
                weights="random" if self.has_weights else "given",
                seed=self.seed + 1000 + draw(st.integers(0, _MOST_SEEDS)),
            )

        return cases()


def other_numbers(value: Any) -> list[Any]:
    """Return numbers to try in place of one."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        tried: Sequence[Any] = (value + 1, value - 1, 2 * value, 1, 0, -1)
    else:
        tried = (value * 0.5, value * 3.0 + 0.25, 0.0, 1.0, -value)
    return [other for other in dict.fromkeys(tried) if other != value]


def _in_turn(families: Sequence[Iterator[Case]]) -> Iterator[Case]:
    left = list(families)
    while left:
        for family in list(left):
            case = next(family, None)
            if case is None:
                left.remove(family)
            else:
                yield case
