"""Layouts of tiles where they are computed: the analysis for `AssignLayouts`.

Layouts flow forward from anchors to a fixed point; a value that a loop carries or a branch returns
takes the layout of the value that the inside computes, else of the incoming value, else of its
first user.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tkdebug.compiler.analysis import layout_inference
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import Elementwise, SameLayout
from tkdebug.compiler.dialects.table import PURE
from tkdebug.compiler.ir import Block, Module, Operation, Value
from tkdebug.compiler.ir.control_flow import (
    TiedValues,
    deciding,
    edges_from,
    forwarded,
    junctions,
)
from tkdebug.compiler.ir.op_view import OpView
from tkdebug.compiler.ir.types import TensorType, shape_of
from tkdebug.compiler.layouts import LinearLayout, views
from tkdebug.errors import IRError

_MAX_SWEEPS = 1000
# Ops that need elements of other threads, so that computing them twice costs.
_NOT_REMADE = SameLayout.names - Elementwise.names


class LayoutAssignment:
    """The layout of every tile that is not remade on demand.

    Attributes:
        num_warps: warps of a block.
        warp_size: threads of a warp.
    """

    def __init__(self, module: Module) -> None:
        self.num_warps = layout_inference.num_warps_of(module)
        self.warp_size = tt.Func(module.function).threads_per_warp
        self._layouts: dict[Value, LinearLayout] = {}
        self._flexible: set[Operation] = set()
        # The layout that a reduction's result was sliced from.
        self._parents: dict[Value, LinearLayout] = {}
        # Values with the layout of a dot: other operands are converted to it, not these to others.
        self._heavy: set[Value] = set()
        self._module = module

    def default_layout(self, shape: tuple[int, ...]) -> LinearLayout:
        """The layout of a tile that no op prefers a layout for."""
        return layout_inference.default_layout(shape, self.num_warps, self.warp_size)

    @staticmethod
    def of(module: Module) -> LayoutAssignment:
        """Find the layouts of all tiles of `module`."""
        assignment = LayoutAssignment(module)
        assignment._solve()
        return assignment

    def is_flexible_op(self, op: Operation) -> bool:
        """Whether the op's result is remade in each layout that is wanted."""
        return op in self._flexible

    def of_value(self, value: Value) -> LinearLayout:
        """The layout of a tile."""
        return self._layouts[value]

    def find(self, value: Value) -> LinearLayout | None:
        """The layout of a tile; None for one that is remade on demand."""
        return self._layouts.get(value)

    # Solving

    def _solve(self) -> None:
        function = self._module.function
        self._find_flexible(function.regions[0].block)
        for _ in range(_MAX_SWEEPS):
            if self._sweep(function.regions[0].block):
                continue
            if not self._decide_one(function.regions[0].block):
                return
        raise IRError(f"{self._module.name}: layouts do not settle")

    def _find_flexible(self, block: Block) -> None:
        for op in block.operations:
            if op.name.startswith("scf.") or tt.Func.matches(op):
                for region in op.regions:
                    self._find_flexible(region.block)
            elif self._can_be_remade(op):
                self._flexible.add(op)

    def _can_be_remade(self, op: Operation) -> bool:
        if len(op.results) != 1 or not isinstance(op.result.type, TensorType):
            return False
        if op.name in layout_inference.SOURCES:
            return True
        follows = layout_inference.is_elementwise(op) or op.name in layout_inference.VIEWS
        pure = follows and op.name not in _NOT_REMADE and not op.regions and op.name in PURE
        if not pure and not self._is_small_load(op):
            return False
        return all(
            value.defining_op in self._flexible
            for value in op.operands
            if isinstance(value.type, TensorType)
        )

    def _is_small_load(self, op: Operation) -> bool:
        """Whether each thread's own loads cost less than an exchange between threads.

        A vector of no more elements than there are threads is in the cache after the first of
        them; an exchange takes shared memory and two barriers.
        """
        if not tt.Load.matches(op) or tt.Load(op).volatile:
            return False
        shape = shape_of(op.result.type)
        size = math.prod(shape)
        return max(shape) == size <= self.num_warps * self.warp_size

    def _set(self, value: Value, layout: LinearLayout | None, heavy: bool = False) -> bool:
        if layout is None or value in self._layouts or not isinstance(value.type, TensorType):
            return False
        self._layouts[value] = layout
        if heavy:
            self._heavy.add(value)
        return True

    def _sweep(self, block: Block) -> bool:
        changed = False
        for op in block.operations:
            if op in self._flexible:
                continue
            if op.name.startswith("scf."):
                for region in op.regions:
                    changed |= self._sweep(region.block)
                for tied in _tied(op):
                    changed |= self._settle(tied, tied.yielded)
            else:
                changed |= self._op(op)
        return changed

    def _settle(self, tied: TiedValues, sources: Sequence[Value]) -> bool:
        source = next((value for value in sources if value in self._layouts), None)
        if source is None:
            return False
        assigned, heavy = self._layouts[source], source in self._heavy
        changed = False
        for value in tied.values:
            changed |= self._set(value, assigned, heavy)
            if source in self._parents:
                self._parents.setdefault(value, self._parents[source])
        return changed

    def _op(self, op: Operation) -> bool:
        if not any(isinstance(result.type, TensorType) for result in op.results):
            return False
        given = self._anchor(op)
        heavy = tt.Dot.matches(op)
        parent: LinearLayout | None = None
        if given is None:
            source = self._main_operand(op)
            if source is None:
                return False
            heavy = source in self._heavy
            parent = self._parents.get(source)
            given = self._following_home(op, source, parent)
            if tt.Reduce.matches(op):
                parent = self._layouts[source]
        changed = False
        for result in op.results:
            changed |= self._set(result, given, heavy)
            if parent is not None and result in self._layouts:
                self._parents.setdefault(result, parent)
        return changed

    def _anchor(self, op: Operation) -> LinearLayout | None:
        """The layout that an op itself gives its results; None if it follows its main operand."""
        layout = OpView(op).layout
        if layout is not None:
            return layout
        shape = shape_of(op.results[0].type)
        if op.name in (tt.Histogram.name, tt.TopK.name):
            return self.default_layout(shape)
        if tt.Gather.matches(op):
            return self._layouts.get(tt.Gather(op).indices) or self.default_layout(shape)
        tiles = [value for value in op.operands if isinstance(value.type, TensorType)]
        if not tiles or all(value.defining_op in self._flexible for value in tiles):
            if tt.Reduce.matches(op):
                source = self.default_layout(shape_of(tiles[0].type))
                return layout_inference.result_layout(op, source)
            return self.default_layout(shape)
        if tt.Split.matches(op):
            return views.split(self._split_source(op))
        return None

    def _split_source(self, op: Operation) -> LinearLayout:
        assigned = self._layouts.get(tt.Split(op).source)
        wanted = None if assigned is None else views.split_source(assigned)
        if wanted is None:
            half = self.default_layout(shape_of(op.results[0].type))
            wanted = views.join(half)
        return wanted

    def _main_operand(self, op: Operation) -> Value | None:
        """The operand whose layout `op` follows: one from a dot, else the first with a layout."""
        known = [value for value in op.operands if value in self._layouts]
        return next((value for value in known if value in self._heavy), next(iter(known), None))

    def _following_home(
        self, op: Operation, source: Value, parent: LinearLayout | None
    ) -> LinearLayout | None:
        assigned = self._layouts[source]
        if not tt.Broadcast.matches(op):
            return layout_inference.result_layout(op, assigned)
        shape = shape_of(op.result.type)
        if parent is not None and parent.shape == shape:
            return parent
        return self._demand(op.result, set())

    # Values that nothing has decided

    def _decide_one(self, block: Block) -> bool:
        """Settle the first undecided value by its users, or by default; False if none is left."""
        for value, tied in self._undecided(block):
            if tied is not None and self._settle(tied, tied.entering):
                return True
            layout = self._demand(value, set())
            if layout is None:
                layout = self.default_layout(shape_of(value.type))
            for each in tied.values if tied is not None else (value,):
                self._set(each, layout)
            return True
        return False

    def _undecided(self, block: Block) -> Iterator[tuple[Value, TiedValues | None]]:
        for op in block.operations:
            if op in self._flexible:
                continue
            if op.name.startswith("scf."):
                for tied in _tied(op):
                    for value in tied.values:
                        if isinstance(value.type, TensorType) and value not in self._layouts:
                            yield value, tied
                for region in op.regions:
                    yield from self._undecided(region.block)
                continue
            for result in op.results:
                if isinstance(result.type, TensorType) and result not in self._layouts:
                    yield result, None

    def _demand(self, value: Value, seen: set[Value]) -> LinearLayout | None:
        """The layout in which a user of `value` wants it, or None if no user wants one."""
        if value in seen:
            return None
        seen.add(value)
        for user in value.uses:
            layout = self._demand_of(user, value, seen)
            if layout is not None and layout.shape == shape_of(value.type):
                return layout
        return None

    def _demand_of(self, user: Operation, value: Value, seen: set[Value]) -> LinearLayout | None:
        if user.name in layout_inference.ACCESSES:
            return OpView(user).layout
        if tt.Dot.matches(user):
            layout = tt.Dot(user).layout
            is_acc = tt.Dot(user).accumulator is value
            return layout if is_acc else None
        if layout_inference.is_elementwise(user):
            for other in user.operands:
                if other in self._layouts and shape_of(other.type) == shape_of(value.type):
                    return self._layouts[other]
            return self._result_demand(user, seen)
        if user.name in layout_inference.VIEWS:
            wanted = self._result_demand(user, seen)
            return None if wanted is None else layout_inference.operand_layout(user, wanted)
        if user.name.startswith("scf."):
            for carried in [x for operand, x in forwarded(user) if operand is value]:
                wanted = self._layouts.get(carried) or self._demand(carried, seen)
                if wanted is not None:
                    return wanted
        return None

    def _result_demand(self, op: Operation, seen: set[Value]) -> LinearLayout | None:
        for result in op.results:
            wanted = self._layouts.get(result) or self._demand(result, seen)
            if wanted is not None:
                return wanted
        return None

    # The layouts that ops want

    def operand_layouts(self, op: Operation) -> list[LinearLayout | None]:
        """The layout in which `op` takes each operand; None for operands without one."""
        found = edges_from(op)
        if found:
            forwarded_to = (self._layouts.get(value) for value in found[0].values)
            return [*(None for _ in deciding(op)), *forwarded_to]
        wanted = self._wanted_by(op)
        return [
            (wanted if wanted is not None else self._own_or_default(value))
            if isinstance(value.type, TensorType)
            else None
            for value in op.operands
        ]

    def _own_or_default(self, value: Value) -> LinearLayout:
        assigned = self._layouts.get(value)
        if assigned is not None:
            return assigned
        return self.default_layout(shape_of(value.type))

    def _wanted_by(self, op: Operation) -> LinearLayout | None:
        layout = OpView(op).layout
        if layout is not None:
            return layout
        if tt.Split.matches(op):
            return self._split_source(op)
        if tt.Reduce.matches(op):
            source = self._main_operand(op)
            if source is not None:
                return self._layouts[source]
            (value, *_) = tt.Reduce(op).sources
            return self.default_layout(shape_of(value.type))
        if tt.Histogram.matches(op):
            # Values and their mask have one layout.
            return self._own_or_default(tt.Histogram(op).source)
        if op.name in (tt.Gather.name, tt.TopK.name) or not op.results:
            return None
        assigned = next((self._layouts[r] for r in op.results if r in self._layouts), None)
        if assigned is None:
            return None
        wanted = layout_inference.operand_layout(op, assigned)
        if wanted is None:
            source = self._main_operand(op)
            wanted = None if source is None else self._layouts[source]
        return wanted


def _tied(op: Operation) -> list[TiedValues]:
    return [tied for junction in junctions(op) for tied in junction.tied()]
