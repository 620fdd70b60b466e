"""Edits within expressions: another operator, number, name, axis, mask or bound."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import SequenceMatcher
from functools import cache
from itertools import permutations

from tkdebug.causes.kernel_text import (
    ACCESSES,
    REDUCTIONS,
    SCANS,
    Change,
    Edit,
    KernelText,
    Kind,
    axis_of,
    callee,
    name_of,
    span,
)

# Operators that one is mistaken for, the likeliest first.
_OPERATORS: Mapping[type[ast.operator], tuple[str, tuple[str, ...]]] = {
    ast.Add: ("+", ("-", "*")),
    ast.Sub: ("-", ("+",)),
    ast.Mult: ("*", ("/", "+")),
    ast.Div: ("/", ("*",)),
    ast.FloorDiv: ("//", ("%", "*")),
    ast.Mod: ("%", ("//",)),
    ast.BitAnd: ("&", ("|",)),
    ast.BitOr: ("|", ("&",)),
    ast.LShift: ("<<", (">>",)),
    ast.RShift: (">>", ("<<",)),
}
BY_SIGN = {sign: kind for kind, (sign, _) in _OPERATORS.items()}
_COMPARISONS: Mapping[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Lt: ("<", ("<=", ">", ">=")),
    ast.LtE: ("<=", ("<", ">=", ">")),
    ast.Gt: (">", (">=", "<", "<=")),
    ast.GtE: (">=", (">", "<=", "<")),
    ast.Eq: ("==", ("!=", "<=", ">=")),
    ast.NotEq: ("!=", ("==", "<", ">")),
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
    ("atomic_add", "atomic_max", "atomic_min", "store"),
)
_UNARY = ("trans", "abs", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sigmoid")
_TYPES = ("float32", "float16", "bfloat16", "float64")
LOG2_E = "1.4426950408889634"
_INFINITY = 'float("-inf")'
# What a load gives outside of its mask, the likeliest first.
_OTHERS = {
    "float": ("0.0", _INFINITY, 'float("inf")', "1.0"),
    "int": ("0", "-1", str(-(2**31)), str(2**31 - 1), "1"),
}
# Functions that take blocks' shapes, strides and offsets, a number for each dimension.
_OF_BLOCKS = ("make_block_ptr", "advance", "make_tensor_descriptor", "load", "store")


@cache
def distance(first: str, second: str) -> float:
    """Return how unlike two names are: similar names are mistaken for each other."""
    return 1.0 - SequenceMatcher(None, first, second).ratio()


class ExpressionEdits:
    """The edits of a function's expressions.

    Args:
        text: the text of the function.
    """

    def __init__(self, text: KernelText) -> None:
        self._text = text
        self._factors = {
            (type(node.op), factor.id)
            for node in text.nodes
            if isinstance(node, ast.BinOp)
            for side in (node.left, node.right)
            if isinstance(factor := _indexed(side), ast.Name)
        }

    def edits(self) -> Iterator[Edit]:
        """Yield every candidate."""
        for node in self._text.nodes:
            if isinstance(node, ast.Constant):
                yield from self._constant(node)
            elif isinstance(node, ast.BinOp):
                yield from self._binary(node)
            elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
                yield self._edit("operator", 0.5, node, self._text.text(node.operand))
            elif isinstance(node, ast.Compare) and len(node.ops) == 1:
                yield from self._comparison(node)
            elif isinstance(node, ast.Subscript):
                yield from self._subscript(node)
            elif isinstance(node, ast.Call):
                yield from self._call(node)
            elif isinstance(node, ast.Attribute) and node.attr in _TYPES:
                for other in _TYPES:
                    if other != node.attr:
                        text = f"{self._text.text(node.value)}.{other}"
                        yield self._edit("type", 0.0, node, text)
            elif isinstance(node, ast.IfExp):
                yield self._exchanged(node.body, node.orelse)
            elif isinstance(node, ast.Tuple | ast.List) and self._is_of_block(node):
                yield self._exchanged(node.elts[0], node.elts[1], 0.0)
        for name in self._text.loads:
            yield from self._name(name)

    def _edit(self, rule: str, rank: float, node: ast.AST, text: str) -> Edit:
        return Edit(rule, span(node)[0][0], (self._text.fitted(node, text),), rank)

    def _appended(self, rule: str, rank: float, call: ast.Call, text: str) -> Edit:
        """An argument appended to a call's own."""
        line, column = span(call)[1]
        at = (line, column - 1)
        return Edit(rule, call.lineno, (Change(at, at, f", {text}"),), rank)

    def _exchanged(self, first: ast.expr, second: ast.expr, rank: float = 0.5) -> Edit:
        if isinstance(first, ast.Constant) or isinstance(second, ast.Constant):
            rank += 0.5
        changes = (
            self._text.change(first, self._text.operand(second)),
            self._text.change(second, self._text.operand(first)),
        )
        return Edit("exchange", first.lineno, changes, rank)

    def _is_of_block(self, node: ast.Tuple | ast.List) -> bool:
        """Whether a tuple or list of two is an argument of a function of blocks or accesses."""
        parent = self._text.parents.get(node)
        if isinstance(parent, ast.keyword):
            parent = self._text.parents.get(parent)
        is_argument = isinstance(parent, ast.Call) and callee(parent) in _OF_BLOCKS
        return is_argument and len(node.elts) == 2

    # Numbers and operators

    def _constant(self, node: ast.Constant) -> Iterator[Edit]:
        value, parent = node.value, self._text.parents.get(node)
        if isinstance(parent, ast.keyword) and parent.arg in ("allow_tf32", "input_precision"):
            text = "False" if isinstance(value, bool) else '"ieee"'
            yield self._edit("type", 0.0, node, text)
            return
        if isinstance(value, bool):
            yield self._edit("constant", 0.0, node, str(not value))
        elif isinstance(value, int):
            if isinstance(parent, ast.Call) and callee(parent) == "program_id":
                for axis in {0, 1, 2} - {value}:
                    yield self._edit("axis", 0.0, node, str(axis))
                return
            if self._is_axis(node):
                edit = self._edit("axis", 0.0, node, str(1 - value if value in (0, 1) else 0))
                yield edit
                if turned := self._turned(node):
                    yield replace(edit, changes=(*edit.changes, *turned), rank=0.1)
                return
            if isinstance(parent, ast.Call) and callee(parent) == "arange":
                return
            for at, other in enumerate(
                dict.fromkeys((value + 1, value - 1, 0, 1, 2, 2 * value, -value))
            ):
                if other != value and not self._is_idle(node, other):
                    yield self._edit("constant", 0.1 * at, node, str(other))
        elif isinstance(value, float):
            near = (0.0, 1.0, -value, 2 * value, value / 2, value + 1, value - 1, value * value)
            for at, number in enumerate(dict.fromkeys((*near, 10 * value, value / 10))):
                if number != value and not self._is_idle(node, number):
                    yield self._edit("constant", 0.1 * at, node, repr(number))
            for text in (_INFINITY, LOG2_E):
                yield self._edit("constant", 0.7, node, text)
        if value in (1, 1.0) and not isinstance(value, bool) and isinstance(parent, ast.BinOp):
            for name in self._text.like(Kind("float")):
                yield self._edit("constant", 0.6, node, f"({self._text.text(node)} - {name})")
        if isinstance(value, int | float) and not isinstance(value, bool):
            is_float = isinstance(value, float)
            for name in self._text.like(Kind("float" if is_float else "int")):
                yield self._edit("name", 2.0, node, name)

    def _is_axis(self, node: ast.Constant) -> bool:
        parent = self._text.parents.get(node)
        if isinstance(parent, ast.keyword):
            return parent.arg in ("axis", "dim")
        is_call = isinstance(parent, ast.Call) and callee(parent) in (*REDUCTIONS, *SCANS)
        return is_call and isinstance(parent, ast.Call) and axis_of(parent) is node

    def _is_idle(self, node: ast.Constant, number: float) -> bool:
        """Whether an operator is a no-op with `number` in place of a constant, as `x + 0` is."""
        parent = self._text.parents.get(node)
        if not isinstance(parent, ast.BinOp):
            return False
        if isinstance(parent.op, ast.Add) or (
            isinstance(parent.op, ast.Sub) and parent.right is node
        ):
            return number == 0
        if isinstance(parent.op, ast.Mult):
            return number == 1
        is_divisor = isinstance(parent.op, ast.Div | ast.FloorDiv) and parent.right is node
        return is_divisor and number == 1

    def _binary(self, node: ast.BinOp) -> Iterator[Edit]:
        left, right = self._text.text(node.left), self._text.text(node.right)
        own, others = _OPERATORS.get(type(node.op), ("", ()))
        if self._text.is_address(node):
            # A pointer is where it is: what is added to it may be wrong.
            yield self._edit("operand", 0.5, node, left)
            return
        is_int = not self._text.is_float(node)
        for at, operator in enumerate(others):
            if operator == "/" and is_int:
                continue
            rank = 0.5 * at + (0.3 if own == "//" else 0.0)
            yield self._edit("operator", rank, node, self._with_operator(node, own, operator))
        if own == "//":
            yield self._edit("operator", 0.0, node, f"tl.cdiv({left}, {right})")
        if own == "%" and is_int:
            is_sum = isinstance(node.left, ast.BinOp) and isinstance(
                node.left.op, ast.Add | ast.Sub
            )
            first = left if is_sum else self._text.operand(node.left)
            divisor = self._text.operand(node.right)
            yield self._edit("operator", 0.2, node, f"({first} + {divisor}) % {divisor}")
        if own in ("//", "%") and is_int and isinstance(node.right, ast.Name):
            # The group that an index is in, such as the head of keys that several queries share.
            for name in self._text.scalars():
                if name != node.right.id and not self._text.is_constant(name):
                    rank = 0.3 if name in self._text.unused else 2.5
                    group = f"{self._text.operand(node.left)} // ({name} // {right})"
                    yield self._edit("operator", rank, node, group)
        if own in ("-", "/", "//", "%"):
            yield self._exchanged(node.left, node.right, 1.5 if is_int else 0.5)
        for kept, other in ((left, node.right), (right, node.left)):
            # The other operand goes with the operator.
            rank = 0.3 if isinstance(other, ast.Constant | ast.Name) else 0.6
            yield self._edit("operand", rank, node, kept)

    def _with_operator(self, node: ast.BinOp, own: str, other: str) -> str:
        """Return the text of an operation with another operator, and with its parentheses."""
        start, end = span(node)
        gap = Change(span(node.left)[1], span(node.right)[0], "")
        before, after = Change(start, gap.start, ""), Change(gap.end, end, "")
        text = self._text.piece(gap).replace(own, other, 1)
        text = self._text.piece(before) + text + self._text.piece(after)
        return " ".join(line.strip() for line in text.split("\n"))

    def _comparison(self, node: ast.Compare) -> Iterator[Edit]:
        left, right = self._text.text(node.left), self._text.text(node.comparators[0])
        own, others = _COMPARISONS.get(type(node.ops[0]), ("", ()))
        if not own:
            return
        for at, operator in enumerate(others):
            yield self._edit("comparison", 0.5 * at, node, f"{left} {operator} {right}")
        for sign in "+-":
            yield self._edit("bound", 0.3, node, f"{left} {own} {right} {sign} 1")
        kind = self._text.shape(node.left)
        is_int = not any(
            self._text.kinds[name].element == "float" for name in self._text.names_in(node)
        )
        if is_int:
            # An index that begins elsewhere, such as some iterations later.
            loop = self._text.loop_of(node)
            target = name_of(loop.target) if isinstance(loop, ast.For) else None
            if target is not None and target not in self._text.names_in(node):
                for name in filter(self._text.is_constant, self._text.scalars()):
                    text = f"{target} * {name} + {left} {own} {right}"
                    yield self._edit("bound", 0.3 + (kind == ()), node, text)
            if kind != ():
                yield from self._aligned_at_end(node, own)
            for name in self._text.scalars():
                if name not in self._text.names_in(node):
                    near = name == target
                    for operator in "+-":
                        text = f"{self._text.operand(node.left)} {operator} {name} {own} {right}"
                        rank = (0.2 if near else 1.0) + (0.2 if operator == "-" else 0.0)
                        yield self._edit("bound", rank + (kind == ()), node, text)

    def _aligned_at_end(self, node: ast.Compare, own: str) -> Iterator[Edit]:
        """Comparisons of an index plus the difference of two lengths: axes aligned at the end."""
        text, names = self._text, self._text.names_in(node)
        lengths = [n for n in text.scalars() if n not in names and not text.is_constant(n)]
        left, right = text.operand(node.left), text.text(node.comparators[0])
        for first, second in permutations(lengths, 2):
            if distance(first, second) <= 0.5:
                edited = f"{left} + {first} - {second} {own} {right}"
                yield self._edit("bound", 0.8, node, edited)

    def _turned(self, axis: ast.Constant) -> list[Change]:
        """Return the changes to subscripts of a reduction's result if its axis becomes the other.

        The result is broadcast, directly or by name: `total[None, :]` becomes `total[:, None]`.
        """
        node: ast.AST = axis
        while not (isinstance(node, ast.Call) and callee(node) in REDUCTIONS):
            if node not in self._text.parents:
                return []  # the axis of a grid, as in `tl.program_id(axis=0)`
            node = self._text.parents[node]
        parent = self._text.parents.get(node)
        users = [parent] if isinstance(parent, ast.Subscript) else []
        if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Name):
            name = parent.targets[0].id
            users = [
                user
                for user in self._text.nodes
                if isinstance(user, ast.Subscript)
                and isinstance(user.value, ast.Name)
                and user.value.id == name
            ]
        texts = ((user.slice, self._spread_otherwise(user)) for user in users)
        return [self._text.change(index, text) for index, text in texts if text]

    def _spread_otherwise(self, node: ast.Subscript) -> str:
        """Return the index that broadcasts a vector along the other axis; "" for other indices."""
        index = node.slice
        if isinstance(index, ast.Tuple) and len(index.elts) == 2:
            first, second = (self._text.text(element) for element in index.elts)
            if {first, second} == {":", "None"}:
                return f"{second}, {first}"
        return ""

    def _subscript(self, node: ast.Subscript) -> Iterator[Edit]:
        if index := self._spread_otherwise(node):
            yield self._edit("axis", 0.2, node, f"{self._text.text(node.value)}[{index}]")

    # Calls

    def _call(self, node: ast.Call) -> Iterator[Edit]:
        name, arguments = callee(node), node.args
        for group in _TWINS if name != "store" else ():
            if name in group and isinstance(node.func, ast.Attribute):
                for at, other in enumerate(o for o in group if o != name):
                    text = f"{self._text.text(node.func.value)}.{other}"
                    yield self._edit("function", 0.2 * at, node.func, text)
        if name in _UNARY and arguments:
            yield self._edit("operand", 0.4, node, self._text.text(arguments[0]))
        if name == "to" and isinstance(node.func, ast.Attribute):
            yield self._edit("type", 0.5, node, self._text.text(node.func.value))
        if name in ("dot", "where", "maximum", "minimum", "div_rn", "fdiv") and len(arguments) > 1:
            yield self._exchanged(arguments[-2], arguments[-1])
        if name in ("maximum", "minimum", "min", "max", "where") and len(arguments) > 1:
            for argument in arguments[-2:]:
                yield self._edit("operand", 0.8, node, self._text.text(argument))
        if name == "cdiv" and len(arguments) == 2:
            first, second = map(self._text.text, arguments)
            yield self._edit("operator", 0.2, node, f"{first} // {second}")
        if name == "dot":
            yield from self._dot(node)
        if name in (*REDUCTIONS, *SCANS) and arguments:
            yield from self._reduction(node)
        if name in (*ACCESSES, "histogram"):
            yield from self._access(node, name)
        if name == "load" and not isinstance(self._text.parents.get(node), ast.Attribute):
            yield self._edit("type", 0.4, node, f"{self._text.text(node)}.to(tl.float32)")
        if name == "where" and len(arguments) == 3:
            for condition in self._text.conditions:
                if condition != self._text.text(arguments[0]):
                    yield self._edit("mask", 1.0, arguments[0], condition)
        if name in ("range", "static_range"):
            yield from self._range(node)

    def _dot(self, node: ast.Call) -> Iterator[Edit]:
        if not {keyword.arg for keyword in node.keywords} & {"allow_tf32", "input_precision"}:
            yield self._appended("type", 0.5, node, 'input_precision="ieee"')
        for argument in node.args[:2]:
            text = self._text.text(argument)
            yield self._edit("function", 1.0, argument, f"tl.trans({text})")
        if len(node.args) > 2:
            _, end = span(node.args[1])
            change = Change(end, span(node.args[2])[1], "")
            yield Edit("operand", node.lineno, (change,), 0.4)

    def _reduction(self, node: ast.Call) -> Iterator[Edit]:
        shape = self._text.shape(node.args[0])
        if axis_of(node) is None and (shape is None or len(shape) > 1):
            for axis in (0, 1):
                yield self._appended("axis", 0.3, node, f"axis={axis}")
        if callee(node) in SCANS and all(keyword.arg != "reverse" for keyword in node.keywords):
            yield self._appended("axis", 0.4, node, "reverse=True")
        text = self._text.text(node.args[0])
        wide = f"{self._text.operand(node.args[0])}.to(tl.float32)"
        yield self._edit("type", 0.3, node.args[0], wide)
        for function in ("abs", "exp"):
            yield self._edit("function", 0.5, node.args[0], f"tl.{function}({text})")

    def _access(self, node: ast.Call, name: str) -> Iterator[Edit]:
        """Other offsets and masks of an access to memory, and other values of masked-off lanes."""
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        mask = keywords.get("mask")
        indices = self._text.names_in(node.args[0]) if node.args else set()
        has = set() if mask is None else self._text.names_in(mask)
        yield from self._other_offsets(node)
        for condition, names in self._text.conditions.items():
            # A bound of an index that the address has and the mask has not.
            rank = 0.0 if names & indices and names & indices - has else 1.0
            if mask is None:
                yield self._appended("mask", rank + 0.5, node, f"mask={condition}")
            elif condition != self._text.text(mask):
                yield self._edit("mask", rank + 0.2, mask, condition)
                if condition not in self._text.text(mask):
                    both = f"{self._text.operand(mask)} & ({condition})"
                    yield self._edit("mask", rank, mask, both)
        if mask is not None and name == "load":
            other, statement = keywords.get("other"), self._text.parents.get(node)
            target = statement.targets[0] if isinstance(statement, ast.Assign) else None
            kind = self._text.kinds.get(name_of(target) or "")
            is_int = kind is not None and kind.element == "int"
            for at, text in enumerate(_OTHERS["int" if is_int else "float"]):
                if other is None:
                    yield self._appended("other", 0.2 * at, node, f"other={text}")
                elif text != self._text.text(other):
                    yield self._edit("other", 0.2 * at, other, text)

    def _other_offsets(self, node: ast.Call) -> Iterator[Edit]:
        """The offset of another access in place of an access's own."""
        pointer, own = self._address(node)
        calls = [n for n in self._text.nodes if isinstance(n, ast.Call) and callee(n) in ACCESSES]
        offsets = dict.fromkeys(self._address(call)[1] for call in calls if call is not node)
        for offset in offsets:
            if pointer and offset not in ("", own):
                yield self._edit("index", 0.5, node.args[0], f"{pointer} + {offset}")

    def _address(self, node: ast.Call) -> tuple[str, str]:
        """Return the pointer and the offset of an address that is their sum, or "" for both."""
        if not node.args or not self._text.is_address(node.args[0]):
            return "", ""
        pointer, plus, offset = self._text.text(node.args[0]).partition(" + ")
        return (pointer, offset) if plus and pointer.isidentifier() else ("", "")

    def _range(self, node: ast.Call) -> Iterator[Edit]:
        texts = [self._text.text(argument) for argument in node.args]
        step = texts[2] if len(texts) > 2 else "1"
        stop = node.args[1] if len(texts) > 1 else node.args[0]
        for sign in "+-":
            rule = "range"
            if isinstance(stop, ast.Name) and self._text.sources(stop) != {stop.id}:
                rule = "bound"
            text = f"{self._text.operand(stop)} {sign} {step}"
            yield self._edit(rule, 0.5 if rule == "bound" else 0.0, stop, text)
        if len(texts) > 1:
            start = node.args[0]
            if texts[0] != "0":
                yield self._edit("range", 0.0, start, "0")
                yield self._edit("range", 0.2, start, f"{self._text.operand(start)} - {step}")
            yield self._edit("range", 0.2, start, f"{self._text.operand(start)} + {step}")
        for product in self._text.products():
            if product != self._text.text(stop):
                yield self._edit("range", 1.0, stop, product)

    # Names

    def _name(self, node: ast.Name) -> Iterator[Edit]:
        """Other names of its kind in place of a name, similar ones first."""
        kind, text = self._text.kinds.get(node.id), self._text
        if kind is None:
            return
        role = text.role(node)
        for other in text.like(kind):
            if other == node.id or self._cancels(node, other):
                continue
            rank = distance(node.id, other)
            if other in text.unused:
                rank *= 0.3
            elif role not in text.roles.get(other, ()):
                # A name that has this role nowhere is unlikely to be meant.
                rank = 0.4 + rank
            yield self._edit("name", rank, node, other)
        if kind == Kind("int"):
            yield from self._index(node)
        if kind.element in ("int", "pointer"):
            yield from self._address_terms(node, kind)

    def _cancels(self, node: ast.Name, other: str) -> bool:
        """Whether another name in place of a name gives `x - x` or the like."""
        child: ast.AST = node
        parent = self._text.parents.get(node)
        suffix = ""
        if isinstance(parent, ast.Subscript) and parent.value is node:
            suffix = self._text.text(parent).removeprefix(node.id)
            child, parent = parent, self._text.parents.get(parent)
        if isinstance(parent, ast.BinOp) and not isinstance(parent.op, ast.Mult | ast.Add):
            sibling = parent.right if parent.left is child else parent.left
        elif isinstance(parent, ast.Compare):
            sibling = parent.comparators[0] if parent.left is child else parent.left
        else:
            return False
        return self._text.text(sibling) == other + suffix

    def _index(self, node: ast.Name) -> Iterator[Edit]:
        """An index plus or minus one, and a part of it in place of the whole."""
        text, parent = self._text, self._text.parents.get(node)
        is_bound = any(
            isinstance(above, ast.Call) and callee(above) in ("range", "cdiv", "min", "max")
            for above in (parent, text.parents.get(parent) if parent else None)
        )
        if isinstance(parent, ast.BinOp | ast.Compare | ast.Call):
            for sign in "+-":
                rank = 1.5 if text.is_constant(node.id) else 0.0 if is_bound else 0.6
                # A computed name is likelier to be wrong where it is computed than here.
                rank += 0.5 * (text.sources(node) != {node.id})
                yield self._edit("bound", rank, node, f"{node.id} {sign} 1")
        if isinstance(parent, ast.Call) and callee(parent) in ("where", "maximum", "minimum"):
            yield from self._index_of_whole(node)
        yield from self._from_the_end(node)
        if not isinstance(parent, ast.BinOp | ast.Assign) or text.is_constant(node.id):
            return
        if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.FloorDiv | ast.Mod):
            return
        for name in text.scalars():
            if name == node.id:
                continue
            for operator in ("//", "%"):
                known = (BY_SIGN[operator], False, False) in text.roles.get(name, ())
                rank = 0.3 if known or name in text.unused else 1.5
                yield self._edit("index", rank, node, f"{node.id} {operator} {name}")

    def _from_the_end(self, node: ast.Name) -> Iterator[Edit]:
        """A loop's index counted from the last iteration, as for a loop that runs backwards."""
        loop = self._text.loop_of(node)
        if not isinstance(loop, ast.For) or name_of(loop.target) != node.id:
            return
        if isinstance(loop.iter, ast.Call) and len(loop.iter.args) == 1:
            stop = self._text.operand(loop.iter.args[0])
            yield self._edit("index", 0.4, node, f"{stop} - 1 - {node.id}")

    def _index_of_whole(self, node: ast.Name) -> Iterator[Edit]:
        """An index into the whole in place of one into a block: plus a loop's index or another."""
        text, loop = self._text, self._text.loop_of(node)
        target = name_of(loop.target) if isinstance(loop, ast.For) else None
        for name in text.scalars():
            is_other = not name.isupper() and name not in text.sources(node)
            if name != node.id and (name == target or is_other):
                rank = 0.2 if name == target else 0.8
                yield self._edit("offset", rank, node, f"{node.id} + {name}")

    def _address_terms(self, node: ast.Name, kind: Kind) -> Iterator[Edit]:
        """A factor (a stride) or a summand (an offset) that an address lacks."""
        parent, text = self._text.parents.get(node), self._text
        if kind.element == "pointer":
            # A program id that the address is computed from already is not what is missing.
            whole_address: ast.AST = node
            while isinstance(parent, ast.BinOp):
                whole_address, parent = parent, text.parents.get(parent)
            there = text.sources(whole_address)
            for offset in text.products():
                names = {n.id for n in ast.walk(ast.parse(offset)) if isinstance(n, ast.Name)}
                rank = 0.1 if {n for n in names if not text.is_constant(n)} - there else 1.0
                yield self._edit("offset", rank, node, f"{node.id} + {offset}")
            for offset in text.scalars():
                rank = 0.6 if offset not in there else 1.4
                yield self._edit("offset", rank, node, f"{node.id} + {offset}")
            return
        whole: ast.expr = node
        if isinstance(parent, ast.Subscript) and parent.value is node:
            whole, parent = parent, text.parents.get(parent)
        if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Add | ast.Sub):
            if text.is_constant(node.id):
                return
            has_stride = any(
                (ast.Mult, False, True) in text.roles.get(name, ()) for name in text.sources(node)
            )
            for name in text.scalars():
                known = (ast.Mult, False, True) in text.roles.get(name, ())
                rank = 0.3 if name in text.unused else 0.5 if known else 1.2
                yield self._edit("stride", rank + has_stride, whole, f"{text.text(whole)} * {name}")


def _indexed(node: ast.expr) -> ast.expr:
    """Return the expression that a subscript indexes; any other expression unchanged."""
    return node.value if isinstance(node, ast.Subscript) else node
