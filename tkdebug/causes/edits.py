"""Small edits of a kernel's source, simplest first: what people get wrong, the other way round.

Responsible for the candidates only, as text that takes the place of a piece of the source. Most of
them do not compile, or fix nothing: trying them is the caller's. Knows nothing of launches.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from enum import IntEnum

from tkdebug.compiler.frontend.source import KernelSource

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of value that a name has.

    Attributes:
        element: "pointer", "float", "int" or "bool".
        rank: axes of the tile; 0 for a scalar.
    """

    element: str
    rank: int = 0


class Cost(IntEnum):
    """Size of an edit: smaller ones are tried and shown first."""

    TOKEN = 1  # one operator, number, axis or name of the same kind
    PART = 2  # an operand, a mask or a bound
    TERM = 3  # a factor, a term or a mask that is not there


@dataclass(frozen=True, slots=True)
class Change:
    """Text in place of a piece of the source.

    Attributes:
        start: line of the file, counted from 1, and byte of the line.
        end: the same, exclusive.
        text: what is there instead.
    """

    start: Place
    end: Place
    text: str


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit of one function.

    Attributes:
        cost: how much it changes.
        line: of the file, where it begins.
        changes: pieces that do not overlap, in any order.
        rank: of edits of one cost those with a lower one are likelier.
    """

    cost: Cost
    line: int
    changes: tuple[Change, ...]
    rank: float = 0.0

    @property
    def order(self) -> float:
        """Sort key: lower ones are tried first."""
        return self.cost + self.rank

    def apply(self, source: KernelSource) -> KernelSource:
        """Return the edited source.

        Raises:
            SyntaxError: it does not parse.
        """
        return source.with_lines(self.lines(source))

    def lines(self, source: KernelSource) -> list[str]:
        """Return the edited lines; there may be fewer or more than before."""
        lines = [line.encode() for line in source.lines]
        for change in sorted(self.changes, key=lambda change: change.start, reverse=True):
            first, last = change.start[0] - source.first_line, change.end[0] - source.first_line
            joined = lines[first][: change.start[1]] + change.text.encode()
            joined += lines[last][change.end[1] :]
            lines[first : last + 1] = joined.split(b"\n") if joined.strip() else []
        return [line.decode() for line in lines]

    def plain(self, source: KernelSource) -> Edit:
        """Return the edit without parentheses that change nothing."""
        bare = tuple(
            replace(c, text=c.text[1:-1]) if c.text.startswith("(") and c.text.endswith(")") else c
            for c in self.changes
        )
        edit = replace(self, changes=bare)
        try:
            ours, its = (ast.dump(one.apply(source).definition) for one in (self, edit))
        except SyntaxError:
            return self
        return edit if ours == its else self

    def diff(self, source: KernelSource) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the lines that go and those that come, stripped of their common indent."""
        old, new = list(source.lines), self.lines(source)
        while old and new and old[0] == new[0]:
            del old[0], new[0]
        while old and new and old[-1] == new[-1]:
            del old[-1], new[-1]
        return tuple(line.strip() for line in old), tuple(line.strip() for line in new)


_OPERATORS: Mapping[type[ast.operator], tuple[str, tuple[str, ...]]] = {
    ast.Add: ("+", ("-", "*")),
    ast.Sub: ("-", ("+",)),
    ast.Mult: ("*", ("+", "/")),
    ast.Div: ("/", ("*",)),
    ast.FloorDiv: ("//", ("%", "*")),
    ast.Mod: ("%", ("//",)),
    ast.BitAnd: ("&", ("|",)),
    ast.BitOr: ("|", ("&",)),
    ast.LShift: ("<<", (">>",)),
    ast.RShift: (">>", ("<<",)),
}
_BY_SIGN = {sign: kind for kind, (sign, _) in _OPERATORS.items()}
# How much likelier a term is whose variable nothing uses, and one that is elsewhere, too.
_FORGOTTEN, _AGAIN = -1.9, -1.2
_COMPARISONS: Mapping[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
# Functions that are mistaken for each other.
_TWINS = (
    ("max", "min", "sum"),
    ("maximum", "minimum"),
    ("exp", "exp2"),
    ("log", "log2"),
    ("sqrt", "rsqrt"),
    ("sin", "cos"),
    ("argmax", "argmin"),
    ("cumsum", "cumprod"),
    ("atomic_add", "atomic_max", "atomic_min"),
)
# Functions that are forgotten.
_FUNCTIONS = ("exp", "log", "sqrt", "abs")
_TYPES = ("float16", "bfloat16", "float32", "float64")
_BINDING = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp)
_LOG2_E = "1.4426950408889634"


def edits_of(
    source: KernelSource,
    globals_: Mapping[str, object],
    kinds: Mapping[str, Kind],
    line: int | None = None,
) -> list[Edit]:
    """Return the edits of a function, the simplest first, each once.

    Args:
        source: of the function.
        globals_: its global names; those of numbers may be used.
        kinds: what its parameters and variables are, where that is known.
        line: of a statement that edits should change something for; None for any.
    """
    found: dict[tuple[Change, ...], Edit] = {}
    for edit in _Enumerator(source, globals_, kinds, line).edits():
        known = found.get(edit.changes)
        if known is None or edit.order < known.order:
            found[edit.changes] = edit
    return sorted(found.values(), key=lambda edit: edit.order)


class _Enumerator:
    """The candidates of one function."""

    def __init__(
        self,
        source: KernelSource,
        globals_: Mapping[str, object],
        kinds: Mapping[str, Kind],
        line: int | None,
    ) -> None:
        self._source = source
        definition = source.definition
        self._body = [s for s in definition.body if not _is_docstring(s)]
        self._lines = None if line is None else _sliced_lines(self._body, line)
        self._parents = {
            child: node for node in ast.walk(definition) for child in ast.iter_child_nodes(node)
        }
        arguments = definition.args
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        self._nodes = [node for statement in self._body for node in ast.walk(statement)]
        names = [node for node in self._nodes if isinstance(node, ast.Name)]
        loads = [node for node in names if isinstance(node.ctx, ast.Load)]
        self._loads = [node for node in loads if not self._is_callee(node)]
        # Constants of a launch are no values of its IR.
        self._kinds = {a.arg: kinds.get(a.arg, Kind("int")) for a in parameters}
        read = {node.id for node in self._loads}
        for name, value in globals_.items():
            number = getattr(value, "value", value)
            if name in read and isinstance(number, int | float):
                self._kinds[name] = Kind("float" if isinstance(number, float) else "int")
        for node in names:
            if isinstance(node.ctx, ast.Store) and node.id in kinds:
                self._kinds[node.id] = kinds[node.id]
        self._conditions = self._found_conditions()
        self._unused = {
            name
            for name, kind in self._kinds.items()
            if name not in read and kind.element != "pointer"
        }
        self._factors = {
            (type(node.op), factor.id)
            for node in self._nodes
            if isinstance(node, ast.BinOp)
            for side in (node.left, node.right)
            if isinstance(factor := _indexed(side), ast.Name)
        }

    def edits(self) -> Iterator[Edit]:
        """Yield every candidate."""
        chosen = self._lines
        for edit in self._all():
            if chosen is None or edit.line in chosen:
                yield edit

    def _all(self) -> Iterator[Edit]:
        for node in self._nodes:
            if isinstance(node, ast.Constant):
                yield from self._constant(node)
            elif isinstance(node, ast.BinOp):
                yield from self._binary(node)
            elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
                yield self._replaced(node, self._text(node.operand), Cost.TOKEN)
            elif isinstance(node, ast.Compare) and len(node.ops) == 1:
                yield from self._comparison(node)
            elif isinstance(node, ast.Subscript):
                yield from self._subscript(node)
            elif isinstance(node, ast.Call):
                yield from self._call(node)
            elif isinstance(node, ast.Attribute) and node.attr in _TYPES:
                for other in _TYPES:
                    if other != node.attr:
                        text = f"{self._text(node.value)}.{other}"
                        yield self._replaced(node, text, Cost.TOKEN)
            elif isinstance(node, ast.IfExp):
                yield self._exchanged(node.body, node.orelse)
        for name in self._loads:
            yield from self._name(name)
        for statement in self._statements():
            yield from self._statement(statement)

    # Expressions

    def _constant(self, node: ast.Constant) -> Iterator[Edit]:
        value = node.value
        if isinstance(value, bool):
            yield self._replaced(node, str(not value), Cost.TOKEN)
        elif isinstance(value, int):
            for other in dict.fromkeys((value + 1, value - 1, 0, 1, 2, 2 * value)):
                if other != value and not self._is_idle(node, other):
                    yield self._replaced(node, str(other), Cost.TOKEN)
        elif isinstance(value, float):
            near = dict.fromkeys((0.0, 1.0, -value, 2 * value, value / 2, value + 1, value - 1))
            for number in near:
                if number != value and not self._is_idle(node, number):
                    yield self._replaced(node, repr(number), Cost.TOKEN)
            yield self._replaced(node, 'float("-inf")', Cost.TOKEN)
            yield self._replaced(node, _LOG2_E, Cost.TOKEN)
        if isinstance(value, int | float) and not isinstance(value, bool):
            for name in self._like(Kind("float" if isinstance(value, float) else "int")):
                yield self._replaced(node, name, Cost.PART)

    def _is_idle(self, node: ast.Constant, number: float) -> bool:
        """Whether an operator with a number does nothing: then it is better left out."""
        parent = self._parents.get(node)
        if not isinstance(parent, ast.BinOp) or parent.right is not node:
            return False
        if isinstance(parent.op, ast.Add | ast.Sub):
            return number == 0
        return isinstance(parent.op, ast.Mult | ast.Div | ast.FloorDiv) and number == 1

    def _binary(self, node: ast.BinOp) -> Iterator[Edit]:
        left, right = self._text(node.left), self._text(node.right)
        own, others = _OPERATORS.get(type(node.op), ("", ()))
        if self._is_address(node):
            # A pointer is where it is: what is added to it may be wrong.
            yield self._replaced(node, left, Cost.PART)
            return
        for operator in others:
            yield self._replaced(node, f"{left} {operator} {right}", Cost.TOKEN)
        if own == "/" and isinstance(node.right, ast.BinOp):
            yield from self._terms(node.right)
        if own in ("-", "/", "//", "%"):
            yield self._exchanged(node.left, node.right)
        yield self._replaced(node, left, Cost.PART)
        yield self._replaced(node, right, Cost.PART)

    def _comparison(self, node: ast.Compare) -> Iterator[Edit]:
        left, right = self._text(node.left), self._text(node.comparators[0])
        own = _COMPARISONS.get(type(node.ops[0]))
        if own is None:
            return
        for operator in _COMPARISONS.values():
            if operator != own:
                yield self._replaced(node, f"{left} {operator} {right}", Cost.TOKEN)
        for sign in "+-":
            yield self._replaced(node, f"{left} {own} {right} {sign} 1", Cost.PART)

    def _subscript(self, node: ast.Subscript) -> Iterator[Edit]:
        index = node.slice
        if isinstance(index, ast.Tuple) and len(index.elts) == 2:
            first, second = (self._text(element) for element in index.elts)
            if {first, second} == {":", "None"}:
                text = f"{self._text(node.value)}[{second}, {first}]"
                yield self._replaced(node, text, Cost.TOKEN)

    def _call(self, node: ast.Call) -> Iterator[Edit]:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else _name(node.func)
        for group in _TWINS:
            if name in group and isinstance(node.func, ast.Attribute):
                for other in group:
                    if other != name:
                        text = f"{self._text(node.func.value)}.{other}"
                        yield self._replaced(node.func, text, Cost.TOKEN)
        arguments = node.args
        if name in ("trans", "abs", "exp", "exp2", "log", "log2", "sqrt") and arguments:
            yield self._replaced(node, self._text(arguments[0]), Cost.PART)
        if name == "to" and isinstance(node.func, ast.Attribute):
            yield self._replaced(node, self._text(node.func.value), Cost.PART)
        if name in ("dot", "where", "maximum", "minimum", "div_rn", "fdiv") and len(arguments) > 1:
            yield self._exchanged(arguments[-2], arguments[-1])
        if name == "cdiv" and len(arguments) == 2:
            first, second = map(self._text, arguments)
            yield self._replaced(node, f"{first} // {second}", Cost.TOKEN)
        if name == "dot":
            for argument in arguments[:2]:
                yield self._replaced(argument, f"tl.trans({self._text(argument)})", Cost.PART)
        if name in ("load", "store") or (name or "").startswith("atomic"):
            yield from self._access(node, name or "")
        if name in ("range", "static_range"):
            yield from self._range(node)

    def _access(self, node: ast.Call, name: str) -> Iterator[Edit]:
        """Other masks, and values outside of them, of an access to memory."""
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        mask = keywords.get("mask")
        for condition in self._conditions:
            if mask is None:
                yield self._appended(node, f"mask={condition}", Cost.TERM)
            elif condition != self._text(mask):
                yield self._replaced(mask, condition, Cost.PART)
                old = self._operand(mask)
                yield self._replaced(mask, f"{old} & ({condition})", Cost.TERM)
        if mask is not None and name == "load":
            other = keywords.get("other")
            for text in ("0.0", 'float("-inf")', 'float("inf")'):
                if other is None:
                    yield self._appended(node, f"other={text}", Cost.PART)
                else:
                    yield self._replaced(other, text, Cost.TOKEN)
        if name == "store" and len(node.args) > 1:
            yield from self._terms(node.args[1])

    def _range(self, node: ast.Call) -> Iterator[Edit]:
        texts = [self._text(argument) for argument in node.args]
        step = texts[2] if len(texts) > 2 else "1"
        stop = node.args[1] if len(texts) > 1 else node.args[0]
        for sign in "+-":
            text = f"{self._operand(stop)} {sign} {step}"
            yield self._replaced(stop, text, Cost.PART)
        if len(texts) > 1:
            yield self._replaced(node.args[0], "0", Cost.TOKEN)
            for sign in "+-":
                start = f"{self._operand(node.args[0])} {sign} {step}"
                yield self._replaced(node.args[0], start, Cost.PART)

    def _name(self, node: ast.Name) -> Iterator[Edit]:
        """Other names of its kind in the place of one, those that look like it first."""
        kind = self._kinds.get(node.id)
        if kind is not None:
            for other in self._like(kind):
                if other != node.id:
                    rank = 0.0 if other in self._unused else _distance(node.id, other)
                    yield self._replaced(node, other, Cost.TOKEN, rank)
            parent = self._parents.get(node)
            if kind.element == "float" and isinstance(parent, ast.BinOp | ast.Call):
                for edit in self._terms(node, ast.Name(node.id, ast.Store())):
                    yield replace(edit, rank=edit.rank + 0.2)
            elif kind.element in ("int", "pointer"):
                yield from self._address_terms(node, kind)

    def _address_terms(self, node: ast.Name, kind: Kind) -> Iterator[Edit]:
        """A stride or an offset that is not there."""
        parent = self._parents.get(node)
        if kind.element == "pointer":
            for offset in (*self._like(Kind("int")), *self._products()):
                yield self._replaced(node, f"{node.id} + {offset}", Cost.TERM, 0.3)
            return
        whole: ast.AST = node
        if isinstance(parent, ast.Subscript) and parent.value is node:
            whole, parent = parent, self._parents.get(parent)
        if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Add | ast.Sub):
            for name in self._like(Kind("int")):
                text = f"{self._text(whole)} * {name}"
                yield self._replaced(whole, text, Cost.TERM, 0.5)

    def _products(self) -> list[str]:
        """Texts of the products of scalars, such as a row times a stride."""
        scalar = Kind("int")
        return list(
            dict.fromkeys(
                self._text(node)
                for node in self._nodes
                if isinstance(node, ast.BinOp)
                and isinstance(node.op, ast.Mult)
                and all(
                    self._kinds.get(name.id) == scalar
                    for name in ast.walk(node)
                    if isinstance(name, ast.Name)
                )
            )
        )

    def _like(self, kind: Kind) -> list[str]:
        return [name for name, other in self._kinds.items() if other == kind]

    def _is_address(self, node: ast.expr) -> bool:
        """Whether an expression begins with a pointer."""
        while isinstance(node, ast.BinOp):
            node = node.left
        kind = self._kinds.get(_name(node) or "")
        return kind is not None and kind.element == "pointer"

    def _is_float(self, node: ast.expr, target: ast.expr | None = None) -> bool:
        """Whether an expression is a float, as far as can be seen."""
        if target is not None and isinstance(target, ast.Name) and target.id in self._kinds:
            return self._kinds[target.id].element == "float"
        names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
        return any(self._kinds[n].element == "float" for n in names if n in self._kinds)

    # Statements

    def _statement(self, node: ast.stmt) -> Iterator[Edit]:
        if isinstance(node, ast.AugAssign):
            target, value = self._text(node.target), self._text(node.value)
            _, others = _OPERATORS.get(type(node.op), ("", ()))
            for operator in others:
                text = f"{target} {operator}= {value}"
                yield self._replaced(node, text, Cost.TOKEN, is_statement=True)
            yield self._replaced(node, f"{target} = {value}", Cost.TOKEN, is_statement=True)
            yield from self._terms(node.value, node.target)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = self._text(node.targets[0]), self._text(node.value)
            if self._is_assigned_before(node):
                for operator in "+*":
                    text = f"{target} {operator}= {value}"
                    yield self._replaced(node, text, Cost.TOKEN, is_statement=True)
            if not isinstance(node.value, ast.Constant):
                yield from self._terms(node.value, node.targets[0])
        elif isinstance(node, ast.Return) and node.value is not None:
            yield from self._terms(node.value)
        elif isinstance(node, ast.For | ast.While):
            yield from self._stale_state(node)
        yield from self._exchanged_names(node)
        yield from self._moved_statement(node)

    def _is_assigned_before(self, node: ast.Assign) -> bool:
        name = _name(node.targets[0])
        return any(
            isinstance(other, ast.Name)
            and isinstance(other.ctx, ast.Store)
            and other.id == name
            and other.lineno < node.lineno
            for other in self._nodes
        )

    def _exchanged_names(self, node: ast.stmt) -> Iterator[Edit]:
        """Two names of one kind, each in the place of the other, within a statement."""
        if _is_compound(node):
            return
        within = set(map(id, ast.walk(node)))
        places: dict[str, list[ast.Name]] = {}
        for name in self._loads:
            if id(name) in within and name.id in self._kinds:
                places.setdefault(name.id, []).append(name)
        names = list(places)
        for at, first in enumerate(names):
            for second in names[at + 1 :]:
                if self._kinds[first] != self._kinds[second]:
                    continue
                changes = [self._change(n, second) for n in places[first]]
                changes += [self._change(n, first) for n in places[second]]
                yield Edit(Cost.TOKEN, node.lineno, tuple(changes), _distance(first, second))

    def _stale_state(self, node: ast.For | ast.While) -> Iterator[Edit]:
        """An assignment at the end of a loop, of what the next round begins with."""
        inside = [n for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name)]
        stored = {n.id for n in inside if isinstance(n.ctx, ast.Store)}
        read = {n.id for n in inside if isinstance(n.ctx, ast.Load)}
        before = {n.id for n in self._nodes if isinstance(n, ast.Name) and n.lineno < node.lineno}
        indent = " " * node.body[-1].col_offset
        at = _span(node.body[-1])[1]
        for name in sorted((read & before & self._kinds.keys()) - stored):
            for other in sorted(stored & self._kinds.keys()):
                if self._kinds[name] == self._kinds[other] and self._kinds[name].element == "float":
                    change = Change(at, at, f"\n{indent}{name} = {other}")
                    yield Edit(Cost.PART, node.lineno, (change,), _distance(name, other))
            if self._kinds[name].element == "pointer":
                for size in self._like(Kind("int")):
                    change = Change(at, at, f"\n{indent}{name} += {size}")
                    yield Edit(Cost.TERM, node.lineno, (change,))

    def _moved_statement(self, node: ast.stmt) -> Iterator[Edit]:
        """A statement that goes, and one that changes places with the next."""
        if _is_compound(node) or isinstance(node, ast.Return):
            return
        parent = self._parents.get(node)
        for name in ("body", "orelse"):
            block = getattr(parent, name, None)
            if not isinstance(block, list) or node not in block:
                continue
            if len(block) > 1:
                yield self._replaced(node, "pass", Cost.PART, 0.5, is_statement=True)
            at = block.index(node)
            if at + 1 < len(block) and not _is_compound(block[at + 1]):
                after = block[at + 1]
                changes = (
                    self._change(node, self._text(after)),
                    self._change(after, self._text(node)),
                )
                yield Edit(Cost.PART, node.lineno, changes)

    def _terms(self, node: ast.expr, target: ast.expr | None = None) -> Iterator[Edit]:
        """One factor, term or mask more, of what the kernel computes."""
        if not self._is_float(node, target):
            return
        text = self._operand(node)
        own_rank = self._rank(node, target)
        for name, kind in self._kinds.items():
            if kind.element not in ("float", "int") or (kind.element == "int" and kind.rank):
                continue
            shown = [name]
            if kind.rank == 1 and own_rank != 1:
                shown = [f"{name}[:, None]", f"{name}[None, :]"]
            for form in shown:
                for operator in "*/" if kind.element == "int" else "*/+-":
                    rank = 0.0
                    if name in self._unused:
                        rank = _FORGOTTEN
                    elif (_BY_SIGN[operator], name) in self._factors:
                        rank = _AGAIN
                    yield self._replaced(node, f"{text} {operator} {form}", Cost.TERM, rank)
        for function in _FUNCTIONS:
            called = f"tl.{function}({self._text(node)})"
            yield self._replaced(node, called, Cost.TERM)
        for condition in self._conditions:
            for outside in ("0.0", 'float("-inf")'):
                where = f"tl.where({condition}, {self._text(node)}, {outside})"
                yield self._replaced(node, where, Cost.TERM)

    def _rank(self, node: ast.expr, target: ast.expr | None) -> int | None:
        if isinstance(target, ast.Name) and target.id in self._kinds:
            return self._kinds[target.id].rank
        return None

    # What there is

    def _statements(self) -> Iterator[ast.stmt]:
        return (node for node in self._nodes if isinstance(node, ast.stmt))

    def _found_conditions(self) -> list[str]:
        """Texts of the masks and comparisons of the function."""
        texts = []
        for node in self._nodes:
            if isinstance(node, ast.keyword) and node.arg == "mask":
                texts.append(self._text(node.value))
            elif isinstance(node, ast.Compare):
                texts.append(self._text(node))
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                if "mask" in node.targets[0].id:
                    texts.append(node.targets[0].id)
        return list(dict.fromkeys(texts))

    def _is_callee(self, node: ast.Name) -> bool:
        parent = self._parents.get(node)
        is_module = isinstance(parent, ast.Attribute) and node.id in ("tl", "triton", "libdevice")
        return is_module or (isinstance(parent, ast.Call) and parent.func is node)

    # Text

    def _text(self, node: ast.AST) -> str:
        if isinstance(node, ast.Slice):
            return ":"
        start, end = _span(node)
        first, last = start[0] - self._source.first_line, end[0] - self._source.first_line
        lines = [line.encode() for line in self._source.lines[first : last + 1]]
        lines[-1] = lines[-1][: end[1]]
        lines[0] = lines[0][start[1] :]
        return (
            " ".join(line.decode().strip() for line in lines)
            if len(lines) > 1
            else (lines[0].decode())
        )

    def _operand(self, node: ast.expr) -> str:
        text = self._text(node)
        return f"({text})" if isinstance(node, _BINDING) else text

    def _change(self, node: ast.AST, text: str) -> Change:
        start, end = _span(node)
        return Change(start, end, text)

    def _replaced(
        self,
        node: ast.AST,
        text: str,
        cost: Cost,
        rank: float = 0.0,
        *,
        is_statement: bool = False,
    ) -> Edit:
        """Text in the place of a node, in parentheses where others bind as tightly."""
        parent = self._parents.get(node)
        if not is_statement and _needs_parentheses(parent, node, text):
            text = f"({text})"
        start, _ = _span(node)
        return Edit(cost, start[0], (self._change(node, text),), rank)

    def _exchanged(self, first: ast.expr, second: ast.expr) -> Edit:
        changes = (
            self._change(first, self._operand(second)),
            self._change(second, self._operand(first)),
        )
        return Edit(Cost.TOKEN, first.lineno, changes)

    def _appended(self, call: ast.Call, text: str, cost: Cost) -> Edit:
        """A keyword argument after those that a call has."""
        line, column = _span(call)[1]
        at = (line, column - 1)
        return Edit(cost, call.lineno, (Change(at, at, f", {text}"),))


def _distance(first: str, second: str) -> float:
    """Return how unlike two names are: names that are alike are mistaken for each other."""
    return 1.5 * (1.0 - SequenceMatcher(None, first, second).ratio())


def _needs_parentheses(parent: ast.AST | None, node: ast.AST, text: str) -> bool:
    if isinstance(parent, ast.Attribute | ast.Subscript) and parent.value is not node:
        return False
    if not isinstance(parent, (*_BINDING, ast.Attribute, ast.Subscript)) or text.isidentifier():
        return False
    try:
        parsed = ast.parse(text, mode="eval").body
    except SyntaxError:
        return False
    return isinstance(parsed, _BINDING)


def _sliced_lines(body: list[ast.stmt], line: int) -> set[int]:
    """The lines of the statements that a statement depends on, and of those around it."""
    nodes = [node for statement in body for node in ast.walk(statement)]
    statements = [node for node in nodes if isinstance(node, ast.stmt)]
    chosen = [s for s in statements if s.lineno <= line <= (s.end_lineno or s.lineno)]
    needed: set[str] = set()
    done = 0
    while done < len(chosen):
        for statement in chosen[done:]:
            needed |= {n.id for n in ast.walk(_header(statement)) if isinstance(n, ast.Name)}
        done = len(chosen)
        for statement in statements:
            if statement not in chosen and (
                _assigned(statement) & needed
                or (_is_compound(statement) and any(s in chosen for s in ast.walk(statement)))
                or isinstance(statement, ast.Return)
            ):
                chosen.append(statement)
    lines: set[int] = set()
    for statement in chosen:
        end = _header(statement).end_lineno if _is_compound(statement) else statement.end_lineno
        lines |= set(range(statement.lineno, (end or statement.lineno) + 1))
    return lines


def _is_compound(node: ast.stmt) -> bool:
    return isinstance(node, ast.For | ast.While | ast.If)


def _header(node: ast.stmt) -> ast.stmt | ast.expr:
    """The part of a statement that is not its body."""
    if isinstance(node, ast.For):
        return node.iter
    return node.test if isinstance(node, ast.While | ast.If) else node


def _assigned(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.For):
        return {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
    if _is_compound(node):
        return set()
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


def _span(node: ast.AST) -> tuple[Place, Place]:
    line, column, end_line, end_column = (
        getattr(node, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")
    )
    return (line, column), (end_line, end_column)


def _name(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) else None


def _indexed(node: ast.expr) -> ast.expr:
    """Return what a subscript indexes, or another expression itself."""
    return node.value if isinstance(node, ast.Subscript) else node


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
