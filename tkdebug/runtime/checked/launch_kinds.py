"""The choice of launches that are checked, if not all of a kernel are.

A launch whose addresses may differ from those of all launches before it is checked: it has another
grid, or other shapes, strides or ints. Loaded values, and NaNs, may differ in any launch, so the
launches 2, 4, 8, … of a kernel are checked if these matter, or if there are more kinds of launches
than are remembered.

Looking at a launch costs some microseconds. A kernel that shows nothing new is not looked at for
`QUIET` launches, then for twice as many, and in the end never again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import MaskedAccess, PointerAccess, stored
from tkdebug.compiler.ir.core import Block, Module, Operation, Value
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.compiler.passes.insert_checks import stores_floats

MOST_KINDS = 16
QUIET = 64
LONGEST_REST = 1 << 14


class LaunchKinds:
    """The launches of one kernel so far.

    Attributes:
        depends_on_data: whether it may go wrong in a launch like another that was checked.
        rest: the number of launches from now on that need not be looked at; None for all.
    """

    def __init__(self) -> None:
        self.depends_on_data = False
        self.rest: int | None = 0
        self._seen: set[Hashable] = set()
        # Whether launches 2, 4, 8, … are checked.
        self._stays = False
        self._launches = 0
        self._checked_at = 0
        # Launches in a row that showed nothing new.
        self._quiet = 0
        self._next_rest = QUIET

    def wants(self, kind: Hashable) -> bool:
        """Whether the launch that is made now is checked.

        Args:
            kind: a key, equal for launches with the same addresses but for loaded ones.
        """
        self._launches += 1 + (self.rest or 0)
        self.rest = 0
        is_new = kind not in self._seen
        if is_new and len(self._seen) < MOST_KINDS:
            self._seen.add(kind)
            return self._checked()
        # One that is not remembered may come again.
        self._stays = self._stays or is_new or self.depends_on_data
        if self._stays and self._launches >= 2 * self._checked_at:
            return self._checked()
        self._quiet += 1
        if self._quiet >= QUIET:
            self._take_rest()
        return False

    def has_seen(self, kind: Hashable) -> bool:
        """Whether a launch of a kind was checked."""
        return kind in self._seen

    def _checked(self) -> bool:
        self._checked_at = self._launches
        self._quiet = 0
        self._next_rest = QUIET
        return True

    def _take_rest(self) -> None:
        rest = self._next_rest
        if self._stays:
            # Up to the one before the next that is checked.
            rest = min(rest, max(0, 2 * self._checked_at - self._launches - 1))
        elif rest > LONGEST_REST:
            self.rest = None
            return
        self._next_rest *= 2
        self.rest = rest


_READS = (tt.Load, tt.Atomic)


def depends_on_data(module: Module) -> bool:
    """Whether a site of a kernel depends on loaded values.

    Args:
        module: the Tile IR, whose ops carry the numbers of their sites.
    """
    if sites_depend_on_data(module):
        return True
    values_matter = {"nan", "inf"}.intersection(tt.Func(module.function).check_symptoms)
    return any(
        # Whether memory was written may differ in each launch.
        OpView(op).value_site is not None
        or (values_matter and stores_floats(op) and _comes_of_loads((stored(op),)))
        for op in module.walk()
    )


def sites_depend_on_data(module: Module) -> bool:
    """Whether the value that a site of a kernel tests, such as an address or a mask, was loaded.

    Args:
        module: the Tile IR, whose ops carry the numbers of their sites.
    """
    return any(OpView(op).site is not None and _comes_of_loads(_tested(op)) for op in module.walk())


def _comes_of_loads(tested: Iterable[Value]) -> bool:
    """Whether a site's tested value depends on a load, also by control flow that a load decides."""
    pending, seen = list(tested), set[Value]()
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        if isinstance(value.owner, Block):
            # For a loop: all operands and carried values.
            parent = value.owner.parent_op
            pending += () if parent is None else _inputs(parent)
        elif any(read.matches(value.owner) for read in _READS):
            return True
        else:
            pending += _inputs(value.owner)
    return False


def _tested(site: Operation) -> Iterator[Value]:
    access = PointerAccess.cast(site)
    if access is None:
        # All operands of ops that access no memory are looked at.
        yield from site.operands
        return
    yield access.pointer
    masked = MaskedAccess.cast(site)
    if masked is not None and masked.mask is not None:
        yield masked.mask


def _inputs(op: Operation) -> Iterator[Value]:
    yield from op.operands
    if tt.Func.matches(op):
        return
    for region in op.regions:
        for block in region.blocks:
            yield from block.terminator.operands if block.operations else ()
