"""Changes a module and records all changes.

Responsible for provenance: every change leaves a `RewriteRecord`, new ops get locations that cover
the ops they replace, and only effect-free or unreachable ops can be erased. Invariant: a source
line disappears from the module only together with a record whose `erased_locations` name it.

Changes to the order of a block's operations are collected and applied by `commit`, in one pass
over each changed block, because a block is a list and single insertions would cost its length.
Uses, operands and `op.block` are always up to date.

A `Pattern` is a rule that looks at one op; `apply_patterns` applies rules until none matches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tkdebug.compiler.dialects.table import is_effect_free
from tkdebug.compiler.ir.core import Attribute, Block, Module, Operation, Region, Value
from tkdebug.compiler.ir.location import Location, fuse
from tkdebug.compiler.ir.op_view import OpName, op_name
from tkdebug.compiler.ir.types import Type
from tkdebug.errors import IRError


@dataclass(frozen=True, slots=True)
class RewriteRecord:
    """One rewrite of one pass.

    Attributes:
        rule: the pass's rule.
        old_op_ids: ops that were removed, or changed in place (then also in `new_op_ids`).
        new_op_ids: ops that replace them; empty when they were erased.
        erased_locations: places that no op has any more because of this rewrite.
    """

    pass_name: str
    rule: str
    old_op_ids: tuple[int, ...]
    new_op_ids: tuple[int, ...] = ()
    erased_locations: tuple[Location, ...] = ()


@dataclass(frozen=True, slots=True)
class PassRemark:
    """The reason why a pass left an op as it is instead of making it faster.

    Attributes:
        op_id: the op's id before the pass.
        kind: the missed optimisation: "pipelined", "tensor-cores" or "wgmma"; passes may add
            others.
        reason: why, as the end of a sentence that begins with "because".
    """

    pass_name: str
    op_id: int
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class BegunRewrite:
    """A rewrite that a pass was about to do.

    Attributes:
        number: its number among the rewrites of the pass, from 1 on.
        op: the rewritten op, as it was when the rewrite began.
        first_record: how many records the pass had made before.
    """

    number: int
    rule: str
    op: str
    op_id: int
    location: Location
    first_record: int


class RewriteCounter:
    """Numbers the rewrites of a pass, and drops those after a limit, as LLVM's debug counters do.

    Args:
        limit: the number of the last rewrite that is done; None for no limit.

    Attributes:
        begun: the rewrites that were allowed, also those that the pass then did not do.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self.begun: list[BegunRewrite] = []

    def allows(self, op: Operation, rule: str, records: int) -> bool:
        """Count a rewrite, and return whether it is within the limit."""
        number = len(self.begun) + 1
        if self._limit is not None and number > self._limit:
            return False
        self.begun.append(BegunRewrite(number, rule, op.name, op.id, op.location, records))
        return True


class Rewriter:
    """The only way in which passes change a module."""

    def __init__(
        self, module: Module, pass_name: str, counter: RewriteCounter | None = None
    ) -> None:
        self.module = module
        self.pass_name = pass_name
        self.records: list[RewriteRecord] = []
        self.remarks: list[PassRemark] = []
        self._counter = counter
        self._built: list[Operation] = []
        # Ops waiting for their place before an anchor, which is in the list of the same block,
        # erased from it, or waiting itself.
        self._before: dict[Operation, list[Operation]] = {}
        self._waiting: set[Operation] = set()
        # The changed blocks, each with the ops that are still in its list but moved away.
        self._dirty: dict[Block, set[Operation]] = {}
        self._absorbed: dict[Operation, list[Location]] = {}

    def remark(self, op: Operation, kind: str, reason: str) -> None:
        """Note why `op` did not get the optimisation `kind`; the last remark of a kind counts."""
        self.remarks.append(PassRemark(self.pass_name, op.id, kind, reason))

    def begins(self, op: Operation, rule: str) -> bool:
        """Whether a rewrite of `op` may be done; passes ask before each optional rewrite."""
        return self._counter is None or self._counter.allows(op, rule, len(self.records))

    # Changes

    def build_before(
        self,
        anchor: Operation,
        name: OpName,
        operands: Sequence[Value],
        result_types: Sequence[Type],
        attributes: Mapping[str, Attribute] | None = None,
        *,
        location: Location,
        regions: Sequence[Region] = (),
    ) -> Operation:
        """Build an op before `anchor`; it belongs in the `new_ops` of the replacement it is for."""
        new_id = self.module.new_id()
        op = Operation(
            op_name(name), operands, result_types, attributes or {}, regions, location, new_id
        )
        self._insert(op, anchor)
        self._built.append(op)
        return op

    def replace_with_op(
        self,
        op: Operation,
        rule: str,
        name: OpName,
        operands: Sequence[Value],
        attributes: Mapping[str, Attribute] | None = None,
        *,
        result_types: Sequence[Type] | None = None,
        absorbed: Sequence[Operation] = (),
    ) -> Operation:
        """Replace `op` by a new op at its place.

        Args:
            op: the replaced op.
            rule: name of the rule, for the record.
            name: the new op.
            operands: the operands of the new op.
            attributes: the attributes of the new op.
            result_types: the result types of the new op; None for the types of `op`. An op without
                results may be replaced by one with results, which are unused.
            absorbed: ops whose work the new op does too; they stay, but their locations are
                fused into its own.
        """
        types = [value.type for value in op.results] if result_types is None else result_types
        location = fuse(*self._take_locations(op), *(other.location for other in absorbed))
        new = self.build_before(op, name, operands, types, attributes, location=location)
        if op.results:
            self._replace_uses(op, new.results)
        self._detach(op)
        self._record(rule, (op.id,), (new.id,))
        return new

    def replace_with_values(
        self, op: Operation, rule: str, values: Sequence[Value], new_ops: Sequence[Operation] = ()
    ) -> None:
        """Replace the results of an effect-free `op` by `values` and erase it (folding).

        Args:
            op: the replaced op.
            rule: name of the rule, for the record.
            values: one for each result.
            new_ops: ops built for this; if any, their locations must cover that of `op`.
        """
        self._require_effect_free(op, rule)
        self._replace_uses(op, values)
        if new_ops:
            self._detach(op)
            self._record(rule, (op.id,), tuple(new.id for new in new_ops))
        else:
            self._drop(op, rule, _defining_ids(values))

    def replace_with_ops(self, op: Operation, rule: str, new_ops: Sequence[Operation]) -> None:
        """Replace an unused `op`, with the ops inside it, by ops built to do its work.

        Args:
            op: the replaced op.
            rule: name of the rule, for the record.
            new_ops: the ops, elsewhere, that do its work; they must cover the location of `op`.
        """
        assert new_ops, f"{self._who(op, rule)}: nothing does its work"
        self._require_unused(op, rule)
        old = tuple(inner.id for inner in op.walk())
        self._detach(op)
        self._record(rule, old, tuple(new.id for new in new_ops))

    def replace_with_block(
        self, op: Operation, rule: str, block: Block, arguments: Sequence[Value] = ()
    ) -> None:
        """Replace `op` by the ops of `block`, the one of its regions that runs, exactly once.

        Args:
            op: the replaced op; its other regions never run and are erased.
            rule: name of the rule, for the record.
            block: its terminator forwards the results of `op`.
            arguments: the replacements of the block's arguments.
        """
        self._rebuild(block)
        for argument, value in zip(block.arguments, arguments, strict=True):
            self.replace_value(argument, value)
        self._replace_uses(op, block.terminator.operands)
        for inner in block.operations[:-1]:
            self._move(inner, op)
        self._rebuild(block)
        self._drop(op, rule)

    def erase_unreachable(self, op: Operation, rule: str, values: Sequence[Value] = ()) -> None:
        """Erase an op whose regions never run; `values` replace its results."""
        self._replace_uses(op, values)
        self._drop(op, rule)

    def merge(self, op: Operation, kept: Operation, rule: str) -> None:
        """Replace an effect-free `op` by `kept`, which computes the same; locations fuse."""
        self._require_effect_free(op, rule)
        self._replace_uses(op, kept.results)
        self._absorbed.setdefault(kept, []).extend(self._take_locations(op))
        self._detach(op)
        self._record(rule, (op.id,), (kept.id,))

    def erase(self, op: Operation, rule: str) -> None:
        """Erase an unused effect-free op."""
        self._require_effect_free(op, rule)
        self._require_unused(op, rule)
        self._drop(op, rule)

    def move_before(self, op: Operation, anchor: Operation, rule: str) -> None:
        """Move an effect-free op to before `anchor`, in this or another block."""
        self._require_effect_free(op, rule)
        self._move(op, anchor)
        self._record(rule, (op.id,), (op.id,))

    def move_past(self, op: Operation, anchor: Operation, rule: str) -> None:
        """Move an op that reads to before `anchor`, further down in its block.

        The caller ensures that nothing in between changes the memory that it reads.
        """
        assert op.block is anchor.block, f"{self._who(op, rule)}: would leave its block"
        self._move(op, anchor)
        self._record(rule, (op.id,), (op.id,))

    def keep_results(self, op: Operation, kept: Sequence[int], rule: str) -> None:
        """Keep only the results of `op` with the indices `kept`; the others must be unused."""
        wanted = set(kept)
        for index, result in enumerate(op.results):
            if index not in wanted and result.uses:
                raise IRError(f"{self._who(op, rule)}: result {index} is still used")
        op.results = tuple(op.results[index] for index in kept)
        for index, result in enumerate(op.results):
            result.index = index
        self.record_change(op, rule)

    def record_change(self, op: Operation, rule: str) -> None:
        """Record that `op` was changed in place (operands, attributes, regions)."""
        self._record(rule, (op.id,), (op.id,))

    def record_new(self, op: Operation, rule: str) -> None:
        """Record an op that was built beside existing ones (a conversion, a copy)."""
        self._record(rule, (), (op.id,))

    def replace_value(self, old: Value, new: Value) -> None:
        """Replace all uses of `old` by `new`."""
        old.replace_all_uses_with(new)
        self.note_replaced(old, new)

    def note_replaced(self, old: Value, new: Value) -> None:
        """Note that `new` replaces `old`, where users were changed one by one."""
        if self.module.follower is not None:
            self.module.follower.replaced(old, new)

    def note_copied(self, op: Operation, copy: Operation, known: Mapping[Value, Value]) -> None:
        """Note that `copy` is a clone of `op` whose operands `known` replaces."""
        if self.module.follower is not None:
            self.module.follower.copied(op, copy, known)

    def take_built(self) -> list[Operation]:
        """Return the ops built since the last call."""
        built, self._built = self._built, []
        return built

    def commit(self) -> None:
        """Apply the collected changes: the order of operations and fused locations."""
        for block in list(self._dirty):
            self._rebuild(block)
        for kept, locations in self._absorbed.items():
            kept.location = fuse(kept.location, *locations)
        self._absorbed.clear()

    # Bookkeeping

    def _record(
        self,
        rule: str,
        old: tuple[int, ...],
        new: tuple[int, ...],
        erased: tuple[Location, ...] = (),
    ) -> None:
        self.records.append(RewriteRecord(self.pass_name, rule, old, new, erased))

    def _who(self, op: Operation, rule: str) -> str:
        place = op.location.primary
        return f"{place.file}:{place.line}: {self.pass_name} ({rule}): {op.name} #{op.id}"

    def _require_effect_free(self, op: Operation, rule: str) -> None:
        if not is_effect_free(op):
            raise IRError(
                f"{self._who(op, rule)} has effects, so it may be neither erased, merged nor moved"
            )

    def _require_unused(self, op: Operation, rule: str) -> None:
        if any(result.uses for result in op.results):
            raise IRError(f"{self._who(op, rule)} is still used, so it may not be erased")

    def _replace_uses(self, op: Operation, values: Sequence[Value]) -> None:
        for result, value in zip(op.results, values, strict=True):
            self.replace_value(result, value)

    def _drop(self, op: Operation, rule: str, new: tuple[int, ...] = ()) -> None:
        """Detach `op` and log everything inside it as erased."""
        inside = list(op.walk()) if op.regions else [op]
        locations = dict.fromkeys(
            location for inner in inside for location in self._take_locations(inner)
        )
        self._detach(op)
        self._record(rule, tuple(inner.id for inner in inside), new, tuple(locations))

    def _take_locations(self, op: Operation) -> list[Location]:
        return [op.location, *self._absorbed.pop(op, ())]

    def _detach(self, op: Operation) -> None:
        self._dirty.setdefault(self._block_of(op), set())
        op.block = None
        if op.regions:
            for inner in op.walk():
                inner.operands = ()
                inner.block = None
        else:
            op.operands = ()

    def _block_of(self, op: Operation) -> Block:
        if op.block is None:
            raise IRError(f"{self._who(op, 'edit')} is no longer in the module")
        return op.block

    def _insert(self, op: Operation, anchor: Operation) -> None:
        op.block = self._block_of(anchor)
        self._before.setdefault(anchor, []).append(op)
        self._waiting.add(op)
        self._dirty.setdefault(op.block, set())

    def _move(self, op: Operation, anchor: Operation) -> None:
        source = self._block_of(op)
        if op in self._waiting or op in self._before:
            self._rebuild(source)
        self._dirty.setdefault(source, set()).add(op)
        self._insert(op, anchor)

    def _rebuild(self, block: Block) -> None:
        """Apply the collected insertions, moves and erasures to the operation list of `block`."""
        gone = self._dirty.pop(block, None)
        if gone is None:
            return
        order: list[Operation] = []
        for op in block.operations:
            if op not in gone:
                self._place(op, block, order)
        block.operations = order

    def _place(self, op: Operation, block: Block, order: list[Operation]) -> None:
        if op in self._before:
            for earlier in self._before.pop(op):
                self._waiting.discard(earlier)
                self._place(earlier, block, order)
        if op.block is block:
            order.append(op)


def _defining_ids(values: Iterable[Value]) -> tuple[int, ...]:
    return tuple(
        dict.fromkeys(value.owner.id for value in values if isinstance(value.owner, Operation))
    )


# A pattern set that rewrites one op this often on average does not converge.
_MAX_REWRITES_PER_OP = 20


@dataclass(frozen=True, slots=True)
class Pattern:
    """One peephole rule: `apply` rewrites an op and returns True, or leaves it and returns False.

    Attributes:
        rule: name of the rule, as records show it.
        roots: names of the ops it looks at.
    """

    rule: str
    roots: tuple[str, ...]
    apply: Callable[[Operation, Rewriter], bool]


def by_root(patterns: Iterable[Pattern]) -> dict[str, list[Pattern]]:
    """The patterns for each op name, in order."""
    table: dict[str, list[Pattern]] = {}
    for pattern in patterns:
        for root in pattern.roots:
            table.setdefault(root, []).append(pattern)
    return table


def apply_patterns(
    module: Module, rewriter: Rewriter, patterns: Mapping[str, Sequence[Pattern]]
) -> None:
    """Apply `patterns`, by the names of the ops they look at, until none matches.

    Raises:
        IRError: the patterns do not converge.
    """
    # Worked from the end, so that ops are looked at in program order.
    worklist = [op for op in module.walk() if op.name in patterns]
    worklist.reverse()
    waiting = set(worklist)
    budget = _MAX_REWRITES_PER_OP * (len(worklist) + 50)
    while worklist:
        op = worklist.pop()
        waiting.discard(op)
        if op.block is None:
            continue
        affected = [user for result in op.results for user in result.uses]
        for pattern in patterns[op.name]:
            first_new = len(rewriter.records)
            if not rewriter.begins(op, pattern.rule) or not pattern.apply(op, rewriter):
                continue
            budget -= 1
            if budget < 0:
                place = op.location.primary
                raise IRError(
                    f"{place.file}:{place.line}: {rewriter.pass_name}: rule {pattern.rule} on "
                    f"{op.name} #{op.id}: patterns do not converge"
                )
            assert len(rewriter.records) > first_new, f"{pattern.rule} left no record"
            affected.append(op)
            affected += rewriter.take_built()
            for user in reversed(affected):
                if user.block is not None and user.name in patterns and user not in waiting:
                    waiting.add(user)
                    worklist.append(user)
            break
    rewriter.commit()
