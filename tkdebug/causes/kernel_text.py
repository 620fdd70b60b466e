"""A function's source as edits use it: its names, their kinds, and their uses.

Edits are text in place of pieces of the source. Nothing here knows which edits are worth trying, or
launches.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

from tkdebug.compiler.frontend.source import KernelSource

Place = tuple[int, int]
Shape = tuple[int, ...]
Role = tuple[object, ...]
BINDING = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp)
REDUCTIONS = ("max", "min", "sum", "argmax", "argmin", "xor_sum", "reduce")
SCANS = ("cumsum", "cumprod", "associative_scan")
ACCESSES = ("load", "store", "atomic_add", "atomic_max", "atomic_min", "atomic_xchg")
_ELEMENTWISE = (
    *("where", "maximum", "minimum", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sigmoid"),
    *("abs", "sin", "cos", "erf", "floor", "ceil", "to", "fma", "clamp", "math"),
)


@dataclass(frozen=True, slots=True)
class Change:
    """Text in place of a piece of the source.

    Attributes:
        start: line of the file, counted from 1, and byte of the line.
        end: the end in the same form, exclusive.
        text: the new text.
    """

    start: Place
    end: Place
    text: str


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit of one function.

    Attributes:
        rule: name of the rule that made it.
        line: the first line of the edit in the file.
        changes: pieces that do not overlap, in any order.
        rank: the order among edits of one rule: a lower rank is likelier.
        order: lower ones are tried first, whatever their rules.
    """

    rule: str
    line: int
    changes: tuple[Change, ...]
    rank: float = 0.0
    order: float = 0.0

    @property
    def makes_atomic(self) -> bool:
        """Whether the edited text has an atomic: several programs then make the stored value."""
        return any(".atomic_" in change.text for change in self.changes)

    def apply(self, source: KernelSource) -> KernelSource:
        """Return the edited source.

        Raises:
            SyntaxError: the edited source does not parse.
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
        """Return the removed and the added lines, stripped of their common indent."""
        old, new = list(source.lines), self.lines(source)
        while old and new and old[0] == new[0]:
            del old[0], new[0]
        while old and new and old[-1] == new[-1]:
            del old[-1], new[-1]
        return tuple(line.strip() for line in old), tuple(line.strip() for line in new)


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of value that a name has.

    Attributes:
        element: "pointer", "float", "int" or "bool".
        shape: the shape of the tile; empty for a scalar.
    """

    element: str
    shape: Shape = ()

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)


class KernelText:
    """The parsed source of one function.

    Args:
        source: the source of the function.
        globals_: its global names; those of numbers may be used.
        kinds: the kinds of its parameters and variables, if known.
        is_kernel: whether it is launched, or called by a function that is.

    Attributes:
        nodes: all nodes but the docstring's.
        loads: names that are read, without those of functions and modules.
        kinds: the kinds of the names that edits may use.
        conditions: texts of masks and comparisons, with the names that they have.
        unused: names that nothing reads.
        uses: how often each name is read.
    """

    def __init__(
        self,
        source: KernelSource,
        globals_: Mapping[str, object],
        kinds: Mapping[str, Kind],
        *,
        is_kernel: bool = True,
    ) -> None:
        self.source, self._is_kernel = source, is_kernel
        definition = source.definition
        self.body = [s for s in definition.body if not _is_docstring(s)]
        self.parents = {
            child: node for node in ast.walk(definition) for child in ast.iter_child_nodes(node)
        }
        self.nodes = [node for statement in self.body for node in ast.walk(statement)]
        names = [node for node in self.nodes if isinstance(node, ast.Name)]
        read = [node for node in names if isinstance(node.ctx, ast.Load)]
        self.loads = [node for node in read if not self._is_callee(node)]
        self.uses = Counter(node.id for node in self.loads)
        self.kinds = self._kinds(globals_, kinds, names)
        self.unused = {
            name
            for name, kind in self.kinds.items()
            if not self.uses[name] and kind.element != "pointer"
        }
        self.roles: dict[str, set[Role]] = {}
        for node in self.loads:
            self.roles.setdefault(node.id, set()).add(self.role(node))
        self.conditions = self._conditions()
        self._read_for = self._read_by_name()

    def _read_by_name(self) -> dict[str, set[str]]:
        """Return the names that each variable is computed from, over any number of statements."""
        found: dict[str, set[str]] = {}
        for node in self.statements():
            if isinstance(node, ast.For):
                read, targets = self.names_in(node.iter), [node.target]
            elif isinstance(node, ast.Assign | ast.AugAssign) and node.value is not None:
                read = self.names_in(node.value)
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            else:
                continue
            for target in targets:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name):
                        found.setdefault(name.id, set()).update(read)
        changed = True
        while changed:
            changed = False
            for read in found.values():
                more = set().union(*(found.get(name, ()) for name in read)) - read
                changed = changed or bool(more)
                read |= more
        return found

    def sources(self, node: ast.AST) -> set[str]:
        """Return all names that an expression is computed from, at any distance."""
        names = self.names_in(node)
        return names.union(*(self._read_for.get(name, ()) for name in names))

    def is_constant(self, name: str) -> bool:
        """Whether a name is a parameter that is a constant of the launch."""
        return name in self._constants

    def _kinds(
        self,
        globals_: Mapping[str, object],
        known: Mapping[str, Kind],
        names: list[ast.Name],
    ) -> dict[str, Kind]:
        arguments = self.source.definition.args
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        # Constants of a launch are no values of its IR.
        self._constants = {a.arg for a in parameters if a.arg not in known}
        # The arguments of a called function are not known: a scalar fits beside any shape.
        other = Kind("int" if self._is_kernel else "float")
        kinds = {a.arg: known.get(a.arg, other) for a in parameters}
        for name, value in globals_.items():
            number = getattr(value, "value", value)
            if self.uses[name] and isinstance(number, int | float):
                kinds[name] = Kind("float" if isinstance(number, float) else "int")
        for node in names:
            if isinstance(node.ctx, ast.Store) and node.id in known:
                kinds[node.id] = known[node.id]
            elif isinstance(self.parents.get(node), ast.For) and isinstance(node.ctx, ast.Store):
                kinds[node.id] = Kind("int")
        return kinds

    def _is_callee(self, node: ast.Name) -> bool:
        parent = self.parents.get(node)
        is_module = isinstance(parent, ast.Attribute) and node.id in ("tl", "triton", "libdevice")
        return is_module or (isinstance(parent, ast.Call) and parent.func is node)

    def _conditions(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for node in self.nodes:
            chosen: ast.expr | None = None
            if isinstance(node, ast.keyword) and node.arg == "mask":
                chosen = node.value
            elif isinstance(node, ast.Compare):
                chosen = node
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0]
                if self.kinds.get(name.id, Kind("int")).element == "bool":
                    found[name.id] = self.names_in(node.value) | {name.id}
            if chosen is not None:
                text = self.text(chosen)
                found[text] = self.names_in(chosen)
                for old, new in (("[:, None]", "[None, :]"), ("[None, :]", "[:, None]")):
                    if old in text and new not in text:
                        found.setdefault(text.replace(old, new), found[text])
        for node in self.nodes:
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt | ast.LtE):
                names = self.names_in(node.left)
                if names & self._lessened():
                    found.setdefault(f"{self.text(node.left)} >= 0", names)
        return found

    def _lessened(self) -> set[str]:
        """Return the integers that something is subtracted from: they may be negative."""
        return {
            name
            for node in self.statements()
            if isinstance(node, ast.Assign) and (name := name_of(node.targets[0]))
            if self.kinds.get(name, Kind("float")).element == "int"
            if any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Sub) for n in ast.walk(node))
        }

    # The kinds of names and expressions

    def like(self, kind: Kind) -> list[str]:
        """Return the names of a kind."""
        return [name for name, other in self.kinds.items() if other == kind]

    def scalars(self) -> list[str]:
        """Return the names of integers that are no tiles."""
        return self.like(Kind("int"))

    def names_in(self, node: ast.AST) -> set[str]:
        """Return the names that an expression reads."""
        return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} & self.kinds.keys()

    def is_address(self, node: ast.expr) -> bool:
        """Whether an expression begins with a pointer."""
        while isinstance(node, ast.BinOp):
            node = node.left
        kind = self.kinds.get(node.id) if isinstance(node, ast.Name) else None
        return kind is not None and kind.element == "pointer"

    def is_float(self, node: ast.expr, target: ast.expr | None = None) -> bool:
        """Whether an expression is a float, as far as can be seen."""
        if isinstance(target, ast.Name) and target.id in self.kinds:
            return self.kinds[target.id].element == "float"
        if isinstance(node, ast.Compare):
            return False
        names = self.names_in(node)
        if isinstance(node, ast.Call) and callee(node) == "load":
            return True
        return any(self.kinds[name].element == "float" for name in names)

    def shape(self, node: ast.expr, target: ast.expr | None = None) -> Shape | None:
        """Return the shape of an expression, or None if it cannot be seen."""
        if isinstance(target, ast.Name) and target.id in self.kinds:
            return self.kinds[target.id].shape
        if isinstance(node, ast.Name):
            return self.kinds[node.id].shape if node.id in self.kinds else None
        if isinstance(node, ast.Constant):
            return ()
        if isinstance(node, ast.UnaryOp):
            return self.shape(node.operand)
        if isinstance(node, ast.Subscript):
            return self._indexed_shape(node)
        if isinstance(node, ast.BinOp):
            return _broadcast([self.shape(node.left), self.shape(node.right)])
        if isinstance(node, ast.Compare):
            return _broadcast([self.shape(node.left), *map(self.shape, node.comparators)])
        if isinstance(node, ast.Call):
            return self._called_shape(node)
        return None

    def _indexed_shape(self, node: ast.Subscript) -> Shape | None:
        inner, index = self.shape(node.value), node.slice
        if inner is None or not isinstance(index, ast.Tuple):
            return None
        rest, shape = list(inner), []
        for element in index.elts:
            if isinstance(element, ast.Constant) and element.value is None:
                shape.append(1)
            elif isinstance(element, ast.Slice) and rest:
                shape.append(rest.pop(0))
            else:
                return None
        return (*shape, *rest)

    def _called_shape(self, node: ast.Call) -> Shape | None:
        name = callee(node)
        if name in _ELEMENTWISE:
            own = [node.func.value] if isinstance(node.func, ast.Attribute) and name == "to" else []
            return _broadcast([self.shape(argument) for argument in (*own, *node.args[:3])])
        if name in REDUCTIONS and node.args:
            inner, axis = self.shape(node.args[0]), axis_of(node)
            if inner is None or len(node.keywords) + len(node.args) > 2:
                return None
            if axis is None:
                return () if len(node.keywords) + len(node.args) == 1 else None
            if isinstance(axis, ast.Constant) and isinstance(axis.value, int):
                at = axis.value
                return (*inner[:at], *inner[at + 1 :]) if 0 <= at < len(inner) else None
        return None

    def role(self, node: ast.Name) -> Role:
        """Return how a name is used, such as a factor of the value to its left."""
        child: ast.AST = node
        parent = self.parents.get(node)
        if isinstance(parent, ast.Subscript) and parent.value is node:
            child, parent = parent, self.parents.get(parent)
        if isinstance(parent, ast.BinOp):
            is_left = parent.left is child
            return (type(parent.op), is_left, self._is_in_address(parent))
        if isinstance(parent, ast.Compare):
            return (ast.Compare, parent.left is child)
        if isinstance(parent, ast.keyword):
            return (parent.arg,)
        if isinstance(parent, ast.Call) and child in parent.args:
            return (callee(parent), parent.args.index(child))
        return (type(parent),)

    def _is_in_address(self, node: ast.AST) -> bool:
        while node in self.parents:
            if isinstance(node, ast.BinOp) and self.is_address(node):
                return True
            if isinstance(node, ast.AugAssign) and self.is_address(node.target):
                return True
            if isinstance(node, ast.stmt):
                return False
            node = self.parents[node]
        return False

    def forms(self, name: str, shape: Shape | None) -> list[str]:
        """Return texts of a name that broadcast to a shape, such as `x[:, None]`."""
        own = self.kinds[name].shape
        if not own or own == shape:
            return [name]
        if shape is None:
            has_matrices = any(kind.rank > 1 for kind in self.kinds.values())
            if len(own) == 1 and has_matrices:
                return [name, f"{name}[:, None]", f"{name}[None, :]"]
            return [name]
        if len(own) == 1 and len(shape) == 2:
            both = ((f"{name}[:, None]", shape[0]), (f"{name}[None, :]", shape[1]))
            return [text for text, extent in both if extent in (own[0], 1)]
        return []

    def products(self) -> list[str]:
        """Return the texts of products of scalars, such as a row times a stride."""
        scalar = Kind("int")
        found: dict[str, None] = {}
        for node in self.nodes:
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
                names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
                if names and all(self.kinds.get(name) == scalar for name in names):
                    found[self.text(node)] = None
        return list(found)

    def statement_of(self, node: ast.AST) -> ast.AST:
        """Return the statement that a node is in."""
        while not isinstance(node, ast.stmt) and node in self.parents:
            node = self.parents[node]
        return node

    def loop_of(self, node: ast.AST) -> ast.For | ast.While | None:
        """Return the innermost loop around a node."""
        parent = self.parents.get(node)
        while parent is not None and not isinstance(parent, ast.For | ast.While):
            parent = self.parents.get(parent)
        return parent

    def statements(self) -> Iterator[ast.stmt]:
        """Yield the statements."""
        return (node for node in self.nodes if isinstance(node, ast.stmt))

    # Text

    def text(self, node: ast.AST) -> str:
        """Return the text of a node, on one line."""
        if isinstance(node, ast.Slice):
            return ":"
        start, end = span(node)
        return " ".join(line.strip() for line in self._piece(start, end).split("\n"))

    def piece(self, change: Change) -> str:
        """Return the text that a change replaces."""
        return self._piece(change.start, change.end)

    def _piece(self, start: Place, end: Place) -> str:
        first, last = start[0] - self.source.first_line, end[0] - self.source.first_line
        lines = [line.encode() for line in self.source.lines[first : last + 1]]
        lines[-1] = lines[-1][: end[1]]
        lines[0] = lines[0][start[1] :]
        return "\n".join(line.decode() for line in lines)

    def operand(self, node: ast.expr) -> str:
        """Return the text of an expression as an operand of any operator."""
        text = self.text(node)
        return f"({text})" if isinstance(node, BINDING) else text

    def change(self, node: ast.AST, text: str) -> Change:
        """Return the change that puts a text in the place of a node."""
        start, end = span(node)
        return Change(start, end, text)

    def fitted(self, node: ast.AST, text: str) -> Change:
        """Return the change of a node to another expression's text, in parentheses if needed."""
        if needs_parentheses(self.parents.get(node), node, text):
            text = f"({text})"
        return self.change(node, text)


def _broadcast(shapes: list[Shape | None]) -> Shape | None:
    result: list[int] = []
    for shape in shapes:
        if shape is None:
            return None
        if len(shape) > len(result):
            result = [1] * (len(shape) - len(result)) + result
        for at in range(1, len(shape) + 1):
            result[-at] = max(result[-at], shape[-at])
    return tuple(result)


def needs_parentheses(parent: ast.AST | None, node: ast.AST, text: str) -> bool:
    """Whether an expression's text binds less tightly than the code around a node."""
    if isinstance(parent, ast.Attribute | ast.Subscript) and parent.value is not node:
        return False
    if not isinstance(parent, (*BINDING, ast.Attribute, ast.Subscript)) or text.isidentifier():
        return False
    return _binds(text)


@cache
def _binds(text: str) -> bool:
    try:
        return isinstance(ast.parse(text, mode="eval").body, BINDING)
    except SyntaxError:
        return False


def sliced_lines(body: list[ast.stmt], line: int) -> set[int]:
    """Return the lines of the statements that one at a line depends on, and of those around it."""
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
                or (is_compound(statement) and any(s in chosen for s in ast.walk(statement)))
                or isinstance(statement, ast.Return)
            ):
                chosen.append(statement)
    lines: set[int] = set()
    for statement in chosen:
        end = _header(statement).end_lineno if is_compound(statement) else statement.end_lineno
        lines |= set(range(statement.lineno, (end or statement.lineno) + 1))
    return lines


def is_compound(node: ast.stmt) -> bool:
    """Whether a statement has others in it."""
    return isinstance(node, ast.For | ast.While | ast.If)


def _header(node: ast.stmt) -> ast.stmt | ast.expr:
    """The part of a statement that is not its body."""
    if isinstance(node, ast.For):
        return node.iter
    return node.test if isinstance(node, ast.While | ast.If) else node


def _assigned(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.For):
        return {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
    if is_compound(node):
        return set()
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


def span(node: ast.AST) -> tuple[Place, Place]:
    """Return where a node begins and ends."""
    line, column, end_line, end_column = (
        getattr(node, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")
    )
    return (line, column), (end_line, end_column)


def name_of(node: ast.AST | None) -> str | None:
    """Return the name that an expression is, or None."""
    return node.id if isinstance(node, ast.Name) else None


def callee(node: ast.Call) -> str:
    """Return the last part of the name of the function that a call calls."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else name_of(node.func) or ""


def axis_of(node: ast.Call) -> ast.expr | None:
    """Return the axis of a call of a reduction or scan, or None without one."""
    for keyword in node.keywords:
        if keyword.arg == "axis":
            return keyword.value
    return node.args[1] if len(node.args) > 1 else None


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
