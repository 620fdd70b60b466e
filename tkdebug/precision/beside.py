"""A launch in fp64 beside itself: each op runs once as it is, and once for every side of its tiles.

For each float there is what the kernel has (`actual`), what it would be in fp64 (`exact`), and
what it would be in fp64 if only one cause of error at one line were there (a world). An op's own
error is its result less the same op in fp64 on the operands that it really got; a world takes the
errors of its own ops over, so that all worlds' differences from fp64 add up to the kernel's to
first order.

Integers, masks, addresses and branches are the kernel's on every side. Invariant: `actual` is what
the kernel computes without any of this, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tkdebug.causes.fp64 import widen_floats
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.dialects.interfaces import Cast, ElementFunction, MemoryAccess, stored
from tkdebug.compiler.dialects.table import is_terminator
from tkdebug.compiler.ir import Block, Module, Operation, Value
from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW
from tkdebug.compiler.ir.core import fact_of
from tkdebug.compiler.ir.op_view import OpView, names_of
from tkdebug.compiler.rewriting.copies import copy_module
from tkdebug.errors import UnsupportedError
from tkdebug.interpreter.evaluator import Evaluator, Plan, Rule
from tkdebug.interpreter.plan import planned
from tkdebug.interpreter.rules import RULES
from tkdebug.interpreter.tiles.side_by_side import SideBySide, sides_of, worlds_of
from tkdebug.interpreter.tiles.values import TileValue
from tkdebug.precision.error_causes import EXACT, approximated, rounds_to_one_side
from tkdebug.precision.memory_beside import MemoryBeside
from tkdebug.precision.op_errors import Unrounded, place_of

if TYPE_CHECKING:
    from tkdebug.interpreter.evaluator import Step
    from tkdebug.precision.op_errors import OpErrors

# Bits of floats, and code that is no Tile IR: what these give is taken as exact.
_OPAQUE = names_of(tt.Bitcast, tt.ElementwiseInlineAsm)
# A float made of another's bits counts as a rounding of it if it differs by no more, relatively.
_ROUNDS_TO = 2.0**-5
_INTEGER_OPS = names_of(arith.IntegerBinary, arith.IntegerCast, arith.Select, tt.Rearrangement)
_INSTRUCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "ex2": torch.exp2,
    "lg2": torch.log2,
    "sin": torch.sin,
    "cos": torch.cos,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "rcp": torch.reciprocal,
}
# Errors of torch for types that a function does not take.
_REFUSED = (UnsupportedError, RuntimeError, TypeError)


class _Twins:
    """Copies of a kernel's ops in fp64, by the op that each is a copy of."""

    def __init__(self, module: Module) -> None:
        twin = copy_module(module)
        widen_floats(twin)
        self.by_op = dict(zip(module.walk(), twin.walk(), strict=True))


class Beside:
    """Makes the rules by which a kernel's ops run on every side.

    Args:
        module: Tile IR of the kernel.
        errors: takes the errors of each op.
        memory: the memory that the launch writes.

    Attributes:
        unfollowed: ops whose errors are not known, with the reason.
    """

    def __init__(self, module: Module, errors: OpErrors, memory: MemoryBeside) -> None:
        self._errors = errors
        self._memory = memory
        self._twins = fact_of(module, _Twins, _Twins).by_op
        self.unfollowed: dict[Operation, str] = {}
        # By value: the floats whose bits were read, or that were made whole, last.
        self._origins: dict[Value, SideBySide] = {}

    def plan(self, own: Plan) -> Plan:
        """Return the plan by which an evaluator runs the kernel on all sides, from its own one."""
        steps: dict[Block, Sequence[Step]] = {}
        for block, each in own.steps.items():
            # A function of elements runs as a whole, once for each side.
            inside = _is_of_elements(block)
            steps[block] = each if inside else [self._step(step) for step in each]
        for op, twin in self._twins.items():
            if ElementFunction.matches(op):
                steps.update(planned(twin).steps)
        return Plan(steps, own.attended_regions)

    def _step(self, step: Step) -> Step:
        rule, view, sources, defined, attended, dying = step
        return self._rule(rule, view.op), view, sources, defined, attended, dying

    def _rule(self, rule: Rule, op: Operation) -> Rule:
        if op.name in CONTROL_FLOW or is_terminator(op):
            return rule
        takes = any(is_float(value.type) for value in op.operands)
        gives = any(is_float(value.type) for value in op.results)
        if MemoryAccess.matches(op):
            return self._access(rule, op, takes)
        if not takes and not gives:
            return rule
        if not gives and rounds_to_one_side(op):
            return self._whole(_plain(rule), op)
        if not gives:
            return self._bits(rule, op) if tt.Bitcast.matches(op) else _plain(rule)
        instruction = approximated(op)
        if op.name in _OPAQUE and instruction is None:
            return self._opaque(rule, op)
        computed = _Computed(rule, op, self._twins[op], self._errors, self.unfollowed)
        if instruction is not None:
            computed.function = _INSTRUCTIONS[instruction]
        if rounds_to_one_side(op):
            return self._whole(computed, op)
        if arith.IntegerToFloat.matches(op):
            return self._from_integer(computed, op)
        return computed

    def _opaque(self, rule: Rule, op: Operation) -> Rule:
        plain, origin = _plain(rule), _origin_of_bits(op)

        def apply(run: Evaluator, view: OpView, *operands: TileValue) -> Sequence[TileValue]:
            results = plain(run, view, *operands)
            rounded = None if origin is None else self._origins.get(origin)
            if rounded is not None and origin is not None:
                made = self._rounded(run, op, rounded, origin.type, results[0])
                if made is not None:
                    return (made,)
            self.unfollowed[op] = f"{op.name} is not followed in fp64"
            return results

        return apply

    def _bits(self, rule: Rule, op: Operation) -> Rule:
        """Return the rule of a bitcast of a float, which is kept: its bits may become it again."""
        (source,) = op.operands

        def apply(run: Evaluator, view: OpView, operand: TileValue) -> Sequence[TileValue]:
            sides = self._origins[source] = sides_of(operand)
            return rule(run, view, sides.actual)

        return apply

    def _whole(self, rule: Rule, op: Operation) -> Rule:
        """Return the rule of rounding to whole numbers, with a world where they are not rounded."""
        (source,), world = op.operands, Unrounded(place_of(op))

        def apply(run: Evaluator, view: OpView, operand: TileValue) -> Sequence[TileValue]:
            (result,) = rule(run, view, operand)
            sides = sides_of(operand)
            self._origins[source] = sides
            if not is_float(op.result.type):
                return (result,)
            return (_in_world(run, op, result, world, sides.in_fp64(run, source.type)),)

        return apply

    def _from_integer(self, rule: Rule, op: Operation) -> Rule:
        """Return the rule of floats from integers, with a world of the floats made integers."""
        cast = _origin_of_integer(op)

        def apply(run: Evaluator, view: OpView, operand: TileValue) -> Sequence[TileValue]:
            (result,) = rule(run, view, operand)
            origin = None if cast is None else self._origins.get(Cast(cast).source)
            if cast is None or origin is None:
                return (result,)
            before = origin.in_fp64(run, Cast(cast).source.type)
            whole = sides_of(result).widened(run, op.result.type)
            if whole.dim() != before.dim() or not bool(((whole - before).abs() < 1).all()):
                return (result,)
            return (_in_world(run, op, result, Unrounded(place_of(cast)), before),)

        return apply

    def _rounded(
        self, run: Evaluator, op: Operation, origin: SideBySide, type_: ir.Type, result: TileValue
    ) -> SideBySide | None:
        """Return a float made of bits as a rounding of their float; None if it is too far off."""
        before = origin.widened(run, type_)
        made = SideBySide(result, origin.in_fp64(run, type_), origin.worlds)
        after = made.widened(run, op.result.type)
        if after.dim() != before.dim() or not bool(
            ((after - before).abs() <= _ROUNDS_TO * before.abs()).all()
        ):
            return None
        self._errors.made(run, op, op, 0, (), made, before)
        return made

    # Memory

    def _access(self, rule: Rule, op: Operation, takes_floats: bool) -> Rule:
        twin = self._twins[op]
        if tt.Load.matches(op) or tt.DescriptorLoad.matches(op) or tt.DescriptorGather.matches(op):
            return self._load(rule, op, twin) if is_float(op.result.type) else _plain(rule)
        if not takes_floats:
            return _plain(rule)
        if tt.Store.matches(op) or tt.DescriptorStore.matches(op):
            return self._store(rule, op, twin)
        if tt.AtomicRmw.matches(op) and tt.AtomicRmw(op).kind == "fadd":
            return self._atomic(rule, op, twin)
        return self._overwriting(rule, op)

    def _load(self, rule: Rule, op: Operation, twin: Operation) -> Rule:
        memory, type_ = self._memory, op.result.type

        def apply(
            run: Evaluator, view: OpView, pointer: TileValue, *rest: TileValue
        ) -> Sequence[TileValue]:
            plain = [sides_of(value).actual for value in rest]
            (actual,) = rule(run, view, pointer, *plain)
            if not memory.is_beside(pointer):
                return (SideBySide(actual),)
            others = [sides_of(value) for value in rest]
            _, *operands = op.operands

            def read(world: Hashable | None) -> Tensor:
                given = [
                    _on_side(run, value, operand.type, world)
                    for value, operand in zip(others, operands, strict=True)
                ]
                with _unwatched(run):
                    (found,) = _run(run, twin, memory.pointer(pointer, world), *given)
                # Cloned, as it may be a view of the copy, which later stores change.
                return run.dense(found, twin.result.type).clone()

            worlds = {world: read(world) for world in memory.worlds_at(pointer)}
            result = SideBySide(actual, read(None), worlds)
            self._errors.loaded(run, op, type_, result)
            return (result,)

        return apply

    def _store(self, rule: Rule, op: Operation, twin: Operation) -> Rule:
        memory = self._memory

        def apply(
            run: Evaluator, view: OpView, pointer: TileValue, value: TileValue, *rest: TileValue
        ) -> Sequence[TileValue]:
            sides, type_ = sides_of(value), stored(op).type
            if memory.is_only_stored(pointer):
                rule(run, view, pointer, sides.actual, *rest)
                memory.note_store(
                    run,
                    lambda: sides.widened(run, type_),
                    lambda: _in_all_worlds(run, sides, type_),
                )
                return ()
            is_beside = memory.begin(pointer)
            rule(run, view, pointer, sides.actual, *rest)
            if not is_beside:
                self.unfollowed[op] = "memory behind a pointer that is no argument's"
                return ()
            memory.mark()
            with _unwatched(run):
                for world in (*memory.worlds_at(pointer, worlds_of(value)), None):
                    wide = _on_side(run, sides, type_, world)
                    _run(run, twin, memory.pointer(pointer, world), wide, *rest)
            return ()

        return apply

    def _atomic(self, rule: Rule, op: Operation, twin: Operation) -> Rule:
        memory, errors = self._memory, self._errors

        def apply(
            run: Evaluator, view: OpView, pointer: TileValue, value: TileValue, *rest: TileValue
        ) -> Sequence[TileValue]:
            sides, type_ = sides_of(value), stored(op).type
            before = memory.actual(pointer) if memory.begin(pointer) else None
            (old,) = rule(run, view, pointer, sides.actual, *rest)
            if before is None:
                self.unfollowed[op] = "memory behind a pointer that is no argument's"
                return (SideBySide(old),)
            memory.mark()
            with _unwatched(run):
                added = memory.pointer_to(pointer, before)
                _run(run, twin, added, sides.widened(run, type_), *rest)
                own = memory.actual(pointer) - before
                known = memory.worlds_at(pointer, worlds_of(value))
                parts = errors.of_memory(op, own, known)
                worlds = (*memory.worlds_at(pointer, (*known, *parts)), None)
                memory.begin_worlds(pointer, worlds, before)
                olds: dict[Hashable, Tensor] = {}
                for world in worlds:
                    wide = _on_side(run, sides, type_, world)
                    (found,) = _run(run, twin, memory.pointer(pointer, world), wide, *rest)
                    olds[world] = run.dense(found, twin.result.type)
                for world, part in parts.items():
                    memory.add(pointer, world, part)
            return (SideBySide(old, olds.pop(None), olds),)

        return apply

    def _overwriting(self, rule: Rule, op: Operation) -> Rule:
        """Return the rule of a write that is not followed: all sides get what the kernel wrote."""
        memory = self._memory

        def apply(
            run: Evaluator, view: OpView, pointer: TileValue, *rest: TileValue
        ) -> Sequence[TileValue]:
            self.unfollowed[op] = f"{op.name} is not followed in fp64"
            before = memory.actual(pointer) if memory.begin(pointer) else None
            results = rule(run, view, pointer, *(sides_of(value).actual for value in rest))
            if before is not None:
                memory.mark()
                memory.take_over(pointer, before)
            return results

        return apply


class _Computed:
    """The rule of an op that computes floats, on all sides.

    Args:
        rule: the op's own rule.
        op: the op.
        twin: the op in fp64.
        errors: takes the op's errors.
        unfollowed: takes the op, with the reason, if it cannot run in fp64.
    """

    def __init__(
        self,
        rule: Rule,
        op: Operation,
        twin: Operation,
        errors: OpErrors,
        unfollowed: dict[Operation, str],
    ) -> None:
        self._rule, self._op, self._twin = rule, op, twin
        self._errors, self._unfollowed = errors, unfollowed
        self._types = [value.type for value in op.operands]
        self._floats = [is_float(type_) for type_ in self._types]
        self._makes = [is_float(value.type) for value in op.results]
        self._apply, self._view = RULES[twin.name], OpView(twin)
        # Computes it in fp64 if its own rule does not.
        self.function: Callable[[Tensor], Tensor] | None = None
        self._is_exact = op.name in EXACT

    def __call__(self, run: Evaluator, view: OpView, *operands: TileValue) -> Sequence[TileValue]:
        sides = [sides_of(value) for value in operands]
        results = self._rule(run, view, *(side.actual for side in sides))
        is_clean = all(side.exact is None for side in sides)
        if is_clean and self._is_exact:
            return [
                SideBySide(result) if is_one else result
                for is_one, result in zip(self._makes, results, strict=True)
            ]
        try:
            return self._on_all_sides(run, sides, results, is_clean)
        except _REFUSED as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            self._unfollowed[self._op] = f"{self._op.name} has no fp64: {reason}"
            return results

    def _on_all_sides(
        self,
        run: Evaluator,
        sides: Sequence[SideBySide],
        results: Sequence[TileValue],
        is_clean: bool,
    ) -> Sequence[TileValue]:
        names = tuple(worlds_of(*sides))
        wanted: list[Callable[[SideBySide, ir.Type], Tensor]] = []
        if not self._is_exact:
            wanted.append(lambda side, type_: side.widened(run, type_))
        if not is_clean:
            wanted.append(lambda side, type_: side.in_fp64(run, type_))
            wanted += [partial(_in_world_of, run, name) for name in names]
        found = self._evaluated(run, sides, wanted)
        own = None if self._is_exact else found.pop(0)
        exact = own if is_clean else found.pop(0)
        assert exact is not None
        worlds = dict(zip(names, found, strict=True))
        made: list[TileValue] = []
        for place, is_one in enumerate(self._makes):
            if not is_one:
                made.append(results[place])
                continue
            here = {world: each[place] for world, each in worlds.items()}
            side = SideBySide(results[place], exact[place], here)
            if own is not None:
                self._errors.made(run, self._op, self._twin, place, sides, side, own[place])
            made.append(side)
        return made

    def _evaluated(
        self,
        run: Evaluator,
        sides: Sequence[SideBySide],
        wanted: Sequence[Callable[[SideBySide, ir.Type], Tensor]],
    ) -> list[list[Tensor]]:
        """The results in fp64 for some choices of operands, evaluated at once if that is faster."""
        floats = self._floats
        chosen = [
            [choose(side, type_) for side, type_, is_one in self._given(sides, floats) if is_one]
            for choose in wanted
        ]
        if len(wanted) > 1 and _are_small(chosen):
            return self._evaluated_together(run, sides, floats, chosen)
        return [self._evaluated_once(run, sides, floats, tiles) for tiles in chosen]

    def _evaluated_together(
        self,
        run: Evaluator,
        sides: Sequence[SideBySide],
        floats: Sequence[bool],
        chosen: Sequence[Sequence[Tensor]],
    ) -> list[list[Tensor]]:
        """The results for some choices of operands, evaluated at once as groups of programs."""
        programs, active, count = run.programs, run.active, len(chosen)
        tiles = [_stacked(each, programs) for each in zip(*chosen, strict=True)]
        repeated = [
            side if is_one else SideBySide(_repeated(run, side.actual, type_, count))
            for side, type_, is_one in self._given(sides, floats)
        ]
        run.programs = programs * count
        run.active = None if active is None else active.repeat(count)
        try:
            results = self._evaluated_once(run, repeated, floats, tiles)
        finally:
            run.programs, run.active = programs, active
        return [
            [each if len(each) == 1 else each[at : at + programs] for each in results]
            for at in range(0, programs * count, programs)
        ]

    def _given(
        self, sides: Sequence[SideBySide], floats: Sequence[bool]
    ) -> Iterator[tuple[SideBySide, ir.Type, bool]]:
        return zip(sides, self._types, floats, strict=True)

    def _evaluated_once(
        self,
        run: Evaluator,
        sides: Sequence[SideBySide],
        floats: Sequence[bool],
        tiles: Sequence[Tensor],
    ) -> list[Tensor]:
        given = iter(tiles)
        operands = [
            next(given) if is_one else side.actual
            for side, is_one in zip(sides, floats, strict=True)
        ]
        if self.function is not None:
            return [self.function(operand) for operand in operands]  # type: ignore[arg-type]
        with _unwatched(run):
            results = self._apply(run, self._view, *operands)
        made = zip(results, self._twin.results, self._makes, strict=True)
        return [
            run.dense(result, value.type) if is_one else result  # type: ignore[misc]
            for result, value, is_one in made
        ]


# Larger tiles take as long one after the other as at once, and less memory.
_SMALL_ELEMS = 1 << 16


def _are_small(choices: Sequence[Sequence[Tensor]]) -> bool:
    return sum(tile.numel() for tiles in choices for tile in tiles) <= _SMALL_ELEMS


def _stacked(tiles: Sequence[Tensor], programs: int) -> Tensor:
    """The tiles of several choices, one after the other along the axis of programs."""
    extents = [max(axis) for axis in zip(*(tile.shape[1:] for tile in tiles), strict=True)]
    return torch.cat([tile.expand(programs, *extents) for tile in tiles])


def _repeated(run: Evaluator, value: TileValue, type_: ir.Type, count: int) -> TileValue:
    """A value that is no float, repeated `count` times along the axis of programs."""
    if isinstance(value, int):
        return value
    tile = run.dense(value, type_)
    return tile if tile.shape[0] == 1 else tile.repeat(count, *(1,) * (tile.dim() - 1))


def _in_world_of(run: Evaluator, world: Hashable, side: SideBySide, type_: ir.Type) -> Tensor:
    return side.in_world(run, type_, world)


def _in_world(
    run: Evaluator, op: Operation, result: TileValue, world: Unrounded, value: Tensor
) -> SideBySide:
    """Return a result with one more world, in which it is `value`."""
    sides, type_ = sides_of(result), op.result.type
    return SideBySide(sides.actual, sides.in_fp64(run, type_), {**sides.worlds, world: value})


def _origin_of_integer(op: Operation) -> Operation | None:
    """The float-to-integer conversion that an op's integers come from, through clamps and casts."""
    at: Operation | None = Cast(op).source.defining_op if Cast.matches(op) else None
    while at is not None and not arith.FloatToInteger.matches(at):
        if arith.IntegerExtremum.matches(at):
            made = [value.defining_op for value in at.operands]
            at = next((each for each in made if each and not arith.Constant.matches(each)), None)
        elif arith.IntegerCast.matches(at):
            at = Cast(at).source.defining_op
        else:
            return None
    return at


def _origin_of_bits(op: Operation) -> Value | None:
    """The only float whose bits a bitcast's integers are computed from, or None."""
    found: set[Value] = set()
    worklist = list(op.operands) if tt.Bitcast.matches(op) else []
    seen: set[Value] = set()
    while worklist:
        value = worklist.pop()
        made = value.defining_op
        if value in seen or made is None:
            continue
        seen.add(value)
        if tt.Bitcast.matches(made) and is_float(Cast(made).source.type):
            found.add(Cast(made).source)
        elif made.name in _INTEGER_OPS:
            worklist += made.operands
    return found.pop() if len(found) == 1 else None


def _is_of_elements(block: Block) -> bool:
    """Whether a block is in the region of an `ElementFunction`, a function of single elements."""
    op = block.parent_op
    while op is not None and not ElementFunction.matches(op):
        op = None if op.block is None else op.block.parent_op
    return op is not None


def is_float(type_: ir.Type) -> bool:
    """Whether a type is of floats."""
    if isinstance(type_, ir.TokenType | ir.DescriptorType):
        return False
    element = ir.element_of(type_)
    return isinstance(element, ir.ScalarType) and element.is_float


def _run(run: Evaluator, op: Operation, *operands: TileValue) -> Sequence[TileValue]:
    return RULES[op.name](run, OpView(op), *operands)


def _plain(rule: Rule) -> Rule:
    def apply(run: Evaluator, view: OpView, *operands: TileValue) -> Sequence[TileValue]:
        return rule(run, view, *(sides_of(value).actual for value in operands))

    return apply


def _in_all_worlds(
    run: Evaluator, value: SideBySide, type_: ir.Type
) -> Mapping[Hashable | None, Tensor]:
    return {None: value.in_fp64(run, type_), **value.worlds}


def _on_side(
    run: Evaluator, value: SideBySide, type_: ir.Type, world: Hashable | None
) -> TileValue:
    if not is_float(type_):
        return value.actual
    return value.in_fp64(run, type_) if world is None else value.in_world(run, type_, world)


@contextmanager
def _unwatched(run: Evaluator) -> Iterator[None]:
    """Hide from observers what runs inside the block: they see only what the kernel does."""
    followers, run.followers = run.followers, ()
    try:
        yield
    finally:
        run.followers = followers
