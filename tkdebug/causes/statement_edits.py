"""Edits of statements: a factor, term or mask that is missing, state that is not carried on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from tkdebug.causes.expression_edits import BY_SIGN, LOG2_E, distance
from tkdebug.causes.kernel_text import (
    REDUCTIONS,
    Change,
    Edit,
    KernelText,
    Kind,
    callee,
    is_compound,
    name_of,
    span,
)

# Functions that are forgotten.
_FUNCTIONS = ("exp", "log", "sqrt", "abs")
_EXPONENTIALS = ("exp2", "exp")
# Atomics, and how they combine a value with what is in memory.
_ATOMICS = {"atomic_add": "+", "atomic_max": "maximum", "atomic_min": "minimum"}
_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}


class StatementEdits:
    """The edits of a function's statements, and of the values that they compute.

    Args:
        text: the text of the function.
    """

    def __init__(self, text: KernelText) -> None:
        self._text = text
        self._factors = {
            (type(node.op), name)
            for node in text.nodes
            if isinstance(node, ast.BinOp)
            for side in (node.left, node.right)
            if (name := name_of(side.value if isinstance(side, ast.Subscript) else side))
        }
        self._renewed = self._pairs_of_old_and_new()
        self._stale = self._state_that_is_lost()

    def edits(self) -> Iterator[Edit]:
        """Yield every candidate."""
        for statement in self._text.statements():
            yield from self._statement(statement)
        for node in self._text.nodes:
            if isinstance(node, ast.Call):
                yield from self._call(node)
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                if isinstance(node.right, ast.BinOp):
                    for edit in self._terms(node.right):
                        yield replace(edit, rank=edit.rank + 0.3)
        for name in self._text.loads:
            parent = self._text.parents.get(name)
            kind = self._text.kinds.get(name.id)
            if kind is not None and kind.element == "float":
                if isinstance(parent, ast.BinOp | ast.Call):
                    for edit in self._terms(name, ast.Name(name.id, ast.Store()), parent):
                        yield replace(edit, rank=edit.rank + 0.4)

    def _call(self, node: ast.Call) -> Iterator[Edit]:
        name = callee(node)
        if name == "store" and len(node.args) > 1:
            yield from self._terms(node.args[1])
            yield from self._atomics(node)
        if name in (*REDUCTIONS, "dot") and node.args:
            for argument in node.args[:2] if name == "dot" else node.args[:1]:
                if not isinstance(argument, ast.Name):
                    for edit in self._terms(argument):
                        yield replace(edit, rank=edit.rank + 0.5)

    def _statement(self, node: ast.stmt) -> Iterator[Edit]:
        text = self._text
        if isinstance(node, ast.AugAssign):
            target, value = text.text(node.target), text.text(node.value)
            yield self._whole("assignment", 0.0, node, f"{target} = {value}")
            for sign, kind in BY_SIGN.items():
                if sign in "+-*" and not isinstance(node.op, kind):
                    yield self._whole("assignment", 0.5, node, f"{target} {sign}= {value}")
            yield from self._terms(node.value, node.target)
            if text.is_address(node.target):
                yield from self._as_for_another_pointer(node)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = text.text(node.targets[0]), text.text(node.value)
            own = name_of(node.targets[0])
            if self._is_assigned_before(node) and own not in text.names_in(node.value):
                for operator in "+*":
                    rank = 0.0 if operator == "+" else 0.5
                    yield self._whole("assignment", rank, node, f"{target} {operator}= {value}")
            if not _is_initial(node.value):
                yield from self._terms(node.value, node.targets[0])
            yield from self._offsets(node)
        elif isinstance(node, ast.Return) and node.value is not None:
            yield from self._terms(node.value)
        elif isinstance(node, ast.For | ast.While):
            yield from self._stale_state(node)
            yield from self._stale_pointers(node)
        yield from self._exchanged_names(node)
        yield from self._moved(node)

    def _whole(self, rule: str, rank: float, node: ast.stmt, text: str) -> Edit:
        return Edit(rule, node.lineno, (self._text.change(node, text),), rank)

    def _is_assigned_before(self, node: ast.Assign) -> bool:
        name = name_of(node.targets[0])
        return any(
            isinstance(other, ast.Name)
            and isinstance(other.ctx, ast.Store)
            and other.id == name
            and other.lineno < node.lineno
            for other in self._text.nodes
        )

    # Loops

    def _stale_state(self, node: ast.For | ast.While) -> Iterator[Edit]:
        """An assignment, at a loop's end, to a variable that the next iteration begins with."""
        kinds = self._text.kinds
        inside = [n for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name)]
        stored = {n.id for n in inside if isinstance(n.ctx, ast.Store)}
        read = {n.id for n in inside if isinstance(n.ctx, ast.Load)}
        names = (n for n in self._text.nodes if isinstance(n, ast.Name))
        before = {n.id for n in names if n.lineno < node.lineno}
        for name in sorted((read & before & kinds.keys()) - stored):
            for other in sorted(stored & kinds.keys()):
                if kinds[name] == kinds[other] and kinds[name].element == "float":
                    text = f"{name} = {other}"
                    yield self._at_end(node, text, "stale", distance(name, other))

    def _stale_pointers(self, node: ast.For | ast.While) -> Iterator[Edit]:
        """An increment, at a loop's end, of a pointer that the loop uses and does not change."""
        kinds = self._text.kinds
        inside = [n for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name)]
        stored = {n.id for n in inside if isinstance(n.ctx, ast.Store)}
        steps = {
            self._text.text(s.value): name_of(s.target)
            for s in node.body
            if isinstance(s, ast.AugAssign) and self._text.is_address(s.target)
        }
        pointers = {n.id for n in inside} - stored
        for name in sorted(n for n in pointers if n in kinds and kinds[n].element == "pointer"):
            for size in self._text.scalars():
                yield self._at_end(node, f"{name} += {size}", "stale", 1.0)
            for step in steps:
                for text in {step, *self._with_other_strides(step)}:
                    yield self._at_end(node, f"{name} += {text}", "stale", 0.5)

    def _as_for_another_pointer(self, node: ast.AugAssign) -> Iterator[Edit]:
        """An increment by the same step, on the next line, of a pointer that nothing assigns."""
        stored = {
            n.id
            for n in self._text.nodes
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        step, at = self._text.text(node.value), span(node)[1]
        for name, kind in self._text.kinds.items():
            if kind.element == "pointer" and name not in stored:
                text = f"\n{' ' * node.col_offset}{name} += {step}"
                yield Edit("stale", node.lineno, (Change(at, at, text),), -0.2)

    def _with_other_strides(self, step: str) -> Iterator[str]:
        tree = ast.parse(step, mode="eval").body
        for name in (n for n in ast.walk(tree) if isinstance(n, ast.Name)):
            for other in self._text.scalars():
                if other != name.id and distance(name.id, other) < 0.5:
                    yield step[: name.col_offset] + other + step[name.end_col_offset :]

    def _at_end(self, loop: ast.For | ast.While, text: str, rule: str, rank: float) -> Edit:
        indent = " " * loop.body[-1].col_offset
        at = span(loop.body[-1])[1]
        return Edit(rule, at[0], (Change(at, at, f"\n{indent}{text}"),), rank)

    def _pairs_of_old_and_new(self) -> list[tuple[str, str]]:
        """Pairs of a float that a loop carries, and its new value in an iteration."""
        kinds = self._text.kinds
        found: dict[tuple[str, str], None] = {}
        for node in self._text.statements():
            if isinstance(node, ast.Assign) and self._text.loop_of(node) is not None:
                old, new = name_of(node.targets[0]), name_of(node.value)
                if old and new and old in kinds and kinds[old].element == "float":
                    found[old, new] = None
        return list(found)

    def _state_that_is_lost(self) -> set[str]:
        """Names that a loop assigns and that nothing reads after it."""
        lost: set[str] = set()
        for node in self._text.statements():
            if isinstance(node, ast.For | ast.While):
                inside = set(map(id, ast.walk(node)))
                names = [n for n in self._text.nodes if isinstance(n, ast.Name)]
                stored = {n.id for n in names if isinstance(n.ctx, ast.Store) and id(n) in inside}
                end = node.end_lineno or node.lineno
                after = {n.id for n in self._text.loads if n.lineno > end}
                lost |= stored - after
        return lost

    # Statements that go, come or move

    def _offsets(self, node: ast.Assign) -> Iterator[Edit]:
        """An offset of indices that is missing: the program's or the iteration's."""
        text, value = self._text, node.value
        if text.is_float(value, node.targets[0]) or text.is_address(value):
            return
        calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
        ranges = [call for call in calls if callee(call) == "arange" and call.args]
        if not ranges:
            return
        loop = text.loop_of(node)
        target = name_of(loop.target) if isinstance(loop, ast.For) else None
        extent = text.text(ranges[0].args[-1])
        names = text.names_in(value)
        for name in text.scalars():
            if name in names or name == extent or name.isupper():
                continue
            rank = 0.0 if name == target or name in text.unused else 0.6
            whole = text.operand(value) if not isinstance(value, ast.BinOp) else text.text(value)
            for offset in (name, f"{name} * {extent}"):
                change = text.change(value, f"{offset} + {whole}")
                yield Edit("offset", node.lineno, (change,), rank)

    def _moved(self, node: ast.stmt) -> Iterator[Edit]:
        """A statement left out, and one exchanged with the next."""
        if is_compound(node) or isinstance(node, ast.Return):
            return
        parent = self._text.parents.get(node)
        for name in ("body", "orelse"):
            block = getattr(parent, name, None)
            if not isinstance(block, list) or node not in block:
                continue
            if len(block) > 1:
                yield self._whole("statement", 0.5, node, "pass")
            at = block.index(node)
            if at + 1 < len(block) and not is_compound(block[at + 1]):
                after = block[at + 1]
                changes = (
                    self._text.change(node, self._text.text(after)),
                    self._text.change(after, self._text.text(node)),
                )
                yield Edit("statement", node.lineno, changes, 0.3)

    def _exchanged_names(self, node: ast.stmt) -> Iterator[Edit]:
        """Two names of one kind, each in the place of the other, within a statement."""
        if is_compound(node):
            return
        within, kinds = set(map(id, ast.walk(node))), self._text.kinds
        places: dict[str, list[ast.Name]] = {}
        for name in self._text.loads:
            if id(name) in within and name.id in kinds:
                places.setdefault(name.id, []).append(name)
        names = list(places)
        for at, first in enumerate(names):
            for second in names[at + 1 :]:
                if kinds[first] != kinds[second]:
                    continue
                changes = [self._text.change(n, second) for n in places[first]]
                changes += [self._text.change(n, first) for n in places[second]]
                rank = distance(first, second)
                yield Edit("exchange", node.lineno, tuple(changes), rank)

    # Stores that several programs make

    def _atomics(self, store: ast.Call) -> Iterator[Edit]:
        """An atomic in place of a store, and in place of the kernel's own load and combination."""
        text, function = self._text, store.func
        if not isinstance(function, ast.Attribute):
            return
        pointer, value = text.text(store.args[0]), store.args[1]
        is_combined = self._loads(value, pointer)
        for at, (atomic, how) in enumerate(_ATOMICS.items()):
            change = text.change(function, f"{text.text(function.value)}.{atomic}")
            if not is_combined:
                yield Edit("function", store.lineno, (change,), 0.2 * at)
                continue
            for sides in self._combined(value, how):
                for own, added in (sides, sides[::-1]):
                    if self._is_load(own, pointer) and not self._loads(added, pointer):
                        changes = (change, text.change(value, text.text(added)))
                        yield Edit("function", store.lineno, changes, 0.2 * at)

    def _is_load(self, node: ast.expr, pointer: str) -> bool:
        """Whether an expression is a load from an address, or a name that one is assigned to."""
        values = self._assigned(node.id) if isinstance(node, ast.Name) else [node]
        return any(
            isinstance(value, ast.Call)
            and callee(value) == "load"
            and bool(value.args)
            and self._text.text(value.args[0]) == pointer
            for value in values
        )

    def _assigned(self, name: str) -> list[ast.expr]:
        """Return the values that a name is assigned."""
        return [
            node.value
            for node in self._text.statements()
            if isinstance(node, ast.Assign) and name_of(node.targets[0]) == name
        ]

    def _loads(self, node: ast.expr, pointer: str) -> bool:
        """Whether a value depends on a load from an address, through any number of names."""
        names = self._text.sources(node) | self._text.names_in(node)
        values = [node, *(value for name in names for value in self._assigned(name))]
        values += [
            statement.value
            for statement in self._text.statements()
            if isinstance(statement, ast.AugAssign) and name_of(statement.target) in names
        ]
        calls = (n for value in values for n in ast.walk(value) if isinstance(n, ast.Call))
        return any(self._is_load(call, pointer) for call in calls)

    def _combined(self, value: ast.expr, how: str) -> Iterator[tuple[ast.expr, ast.expr]]:
        """Yield the two sides of a value that is a sum, or the larger or smaller one of two."""
        name = name_of(value)
        for one in [value] if name is None else self._assigned(name):
            if isinstance(one, ast.BinOp) and BY_SIGN.get(how) is type(one.op):
                yield one.left, one.right
            elif isinstance(one, ast.Call) and callee(one) == how and len(one.args) == 2:
                yield one.args[0], one.args[1]
        for node in self._text.statements():
            if isinstance(node, ast.AugAssign) and BY_SIGN.get(how) is type(node.op):
                if name is not None and name_of(node.target) == name:
                    yield value, node.value

    # Terms

    def _terms(
        self, node: ast.expr, target: ast.expr | None = None, within: ast.AST | None = None
    ) -> Iterator[Edit]:
        """One factor, term, function or mask more: the kernel's names, or plain numbers."""
        text = self._text
        if not text.is_float(node, target):
            return
        # What is loaded is as it should be more often than what is computed.
        later = 1.0 if isinstance(node, ast.Call) and callee(node) == "load" else 0.0
        own, shape = text.operand(node), text.shape(node, target)
        if shape == () and isinstance(within, ast.BinOp):
            shape = text.shape(within)  # a scalar beside a tile has room for one, too
        for name, kind in text.kinds.items():
            if kind.element not in ("float", "int") or (kind.element == "int" and kind.rank):
                continue
            for form in text.forms(name, shape):
                for operator in "*/" if kind.element == "int" else "*+-/":
                    if f"{own}{operator}" in (f"{name}-", f"{name}/"):
                        continue
                    rule, rank = self._likelihood(name, kind, operator)
                    yield self._term(rule, rank + later, node, f"{own} {operator} {form}")
        for function in _FUNCTIONS:
            yield self._term("function", 0.8, node, f"tl.{function}({text.text(node)})")
        yield from self._with_number(node, own, later)
        yield from self._rescaled(node, own, shape)
        yield from self._masked(node, shape)

    def _likelihood(self, name: str, kind: Kind, operator: str) -> tuple[str, float]:
        at = 0.1 * "*+-/".index(operator)
        if name in self._text.unused:
            return "factor", at
        if kind.element == "float" and name in self._stale:
            return "factor", 0.5 + at
        if (BY_SIGN[operator], name) in self._factors:
            return "factor", (0.3 if kind.element == "float" else 0.8) + at
        return "term", at + (0.0 if kind.element == "float" else 0.5)

    def _term(self, rule: str, rank: float, node: ast.expr, text: str) -> Edit:
        return Edit(rule, node.lineno, (self._text.fitted(node, text),), rank)

    def _with_number(self, node: ast.expr, own: str, later: float) -> Iterator[Edit]:
        """A factor or a term that is a number."""
        texts = [f"{own} * 2.0", f"{own} * 0.5", f"1.0 - {own}", f"1.0 + {own}", f"{own} - 1.0"]
        texts += [f"-{own}", f"1.0 / {own}"]
        if any(isinstance(n, ast.Call) and callee(n) == "exp2" for n in self._text.nodes):
            texts.insert(0, f"{own} * {LOG2_E}")
        for at, text in enumerate(texts):
            yield self._term("number", 0.1 * at + later, node, text)

    def _rescaled(self, node: ast.expr, own: str, shape: tuple[int, ...] | None) -> Iterator[Edit]:
        """A factor that rescales a loop's sum to the value that it now subtracts."""
        if not isinstance(node, ast.Name) or self._text.loop_of(node) is None:
            return
        called = [
            name
            for name in _EXPONENTIALS
            if any(isinstance(n, ast.Call) and callee(n) == name for n in self._text.nodes)
        ]
        for old, new in self._renewed:
            forms = self._text.forms(old, shape) if old in self._text.kinds else []
            for form in forms:
                index = form.removeprefix(old)
                for function in called:
                    factor = f"tl.{function}({old} - {new}){index}"
                    yield self._term("rescale", 0.0, node, f"{own} * {factor}")
        # The decay of a state.
        for name in self._text.like(Kind("float")):
            for function in called if name != node.id else ():
                yield self._term("rescale", 0.5, node, f"{own} * tl.{function}({name})")

    def _masked(self, node: ast.expr, shape: tuple[int, ...] | None) -> Iterator[Edit]:
        if shape == ():
            return
        within = self._text.text(self._text.statement_of(node))
        for condition in self._text.conditions:
            if condition in within:
                continue
            for at, outside in enumerate(("0.0", 'float("-inf")')):
                where = f"tl.where({condition}, {self._text.text(node)}, {outside})"
                yield self._term("where", 0.1 * at, node, where)


def _is_initial(node: ast.expr) -> bool:
    """Whether an expression may initialise a sum: a constant, or a call of `zeros` or `full`."""
    calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
    return isinstance(node, ast.Constant) or any(callee(n) in ("zeros", "full") for n in calls)
