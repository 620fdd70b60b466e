"""Reads the parts of operations in IR text: tokens, types, layouts, attributes and locations."""

from __future__ import annotations

import json
import re
import struct
from bisect import bisect_right

from tkdebug.compiler.ir.core import Attribute
from tkdebug.compiler.ir.location import FusedLocation, Location, SourceLocation
from tkdebug.compiler.ir.types import (
    SCALARS,
    TOKEN,
    DescriptorType,
    MemDescType,
    PointerType,
    ScalarType,
    TensorType,
    Type,
    implied_outs,
)
from tkdebug.compiler.layouts.linear import LayoutError, LinearLayout
from tkdebug.errors import IRError

MAX_NESTING = 100
MAX_TEXT_CHARS = 64 << 20

_SPACE = re.compile(r"(?:\s|//[^\n]*)*")
_SPACE_IN_LINE = re.compile(r"[ \t]*")
_WORD = re.compile(r"[A-Za-z_][\w$]*(?:\.[\w$]+)*", re.ASCII)
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_VALUE_NAME = re.compile(r"%([\w$.-]*[\w$.])")
_NUMBER = re.compile(r"-?(?:inf\b|\d+(\.\d*)?([eE][+-]?\d+)?)")
_NAN = re.compile(r"nan(?:\(0x([0-9a-fA-F]{16})\))?")
_INTEGER = re.compile(r"\d{1,12}")
_TOKEN = re.compile(r"->|[\w$.%@^!\"]+|.", re.DOTALL)
# 2**64 has 20 digits; longer integers are no attribute of any op.
_MAX_NUMBER_CHARS = 48


class Cursor:
    """A place in `text` that only moves forward."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_TEXT_CHARS:
            raise IRError(f"<ir>: text has {len(text)} characters, the limit is {MAX_TEXT_CHARS}")
        self.text = text
        self.position = 0
        self._line_starts = [0, *(m.end() for m in re.finditer("\n", text))]

    def line_column(self, position: int) -> tuple[int, int]:
        """1-based line and column of a character."""
        line = bisect_right(self._line_starts, position)
        return line, position - self._line_starts[line - 1] + 1

    def error(self, message: str, position: int | None = None) -> IRError:
        """An error at `position` (here by default), with the text line and a caret."""
        where = self.position if position is None else position
        line, column = self.line_column(where)
        start = self._line_starts[line - 1]
        source = self.text[start:].split("\n", 1)[0] if start < len(self.text) else ""
        shown = source[:200]
        caret = f"\n    {shown}\n    {' ' * (column - 1)}^" if column <= 200 else ""
        return IRError(f"<ir>:{line}:{column}: {message}{caret}")

    def expected(self, what: str) -> IRError:
        """The error that `what` was expected here."""
        self.skip()
        match = _TOKEN.match(self.text, self.position)
        got = repr(match[0][:40]) if match else "end of text"
        return self.error(f"got {got}, expected {what}")

    def skip(self) -> None:
        """Pass over white space and comments."""
        match = _SPACE.match(self.text, self.position)
        assert match is not None
        self.position = match.end()

    def at_end(self) -> bool:
        """Whether only white space and comments remain."""
        self.skip()
        return self.position >= len(self.text)

    def accept(self, token: str) -> bool:
        """Pass over punctuation `token` if it is next; return whether it was."""
        self.skip()
        if self.text.startswith(token, self.position):
            self.position += len(token)
            return True
        return False

    def expect(self, token: str) -> None:
        """Pass over punctuation `token`, which must be next."""
        if not self.accept(token):
            raise self.expected(repr(token))

    def looking_at(self, token: str) -> bool:
        """Whether `token` is next."""
        self.skip()
        return self.text.startswith(token, self.position)

    def operand_follows_in_line(self) -> bool:
        """Whether `%` comes next on this line (the next line's `%x =` starts another op)."""
        match = _SPACE_IN_LINE.match(self.text, self.position)
        assert match is not None
        return self.text.startswith("%", match.end())

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Pass over a match of `pattern` at this position, and return it; None if there is none."""
        self.skip()
        match = pattern.match(self.text, self.position)
        if match is not None:
            self.position = match.end()
        return match

    def word(self) -> str | None:
        """Read a dotted name; None if none is next."""
        match = self.take(_WORD)
        return match[0] if match else None

    def at_word(self) -> bool:
        """Whether a dotted name is next."""
        self.skip()
        return _WORD.match(self.text, self.position) is not None

    def accept_word(self, word: str) -> bool:
        """Pass over exactly `word` if it is next; return whether it was."""
        self.skip()
        match = _WORD.match(self.text, self.position)
        if match is None or match[0] != word:
            return False
        self.position = match.end()
        return True

    def expect_word(self, word: str) -> None:
        """Pass over `word`, which must be next."""
        if not self.accept_word(word):
            raise self.expected(repr(word))

    def string(self) -> str | None:
        """Read a quoted string; None if none is next."""
        start = self.position
        match = self.take(_STRING)
        if match is None:
            return None
        try:
            text: str = json.loads(match[0])
        except ValueError as error:
            raise self.error(f"malformed string: {error}", start) from None
        return text

    def string_value(self) -> str:
        """Read a quoted string, which must be next."""
        value = self.string()
        if value is None:
            raise self.expected("a closed string")
        return value

    def name(self, what: str) -> str:
        """Read a bare or quoted name, which must be next; errors call it `what`."""
        name = self.word()
        if name is None:
            name = self.string()
        if name is None:
            raise self.expected(what)
        return name

    def value_name(self) -> str:
        """Read the name of a value, which must be next; return it without its `%`."""
        match = self.take(_VALUE_NAME)
        if match is None:
            raise self.expected("a value such as %x")
        return match[1]

    def integer(self, what: str) -> int:
        """Read a non-negative integer, which must be next; errors call it `what`."""
        match = self.take(_INTEGER)
        if match is None:
            raise self.expected(what)
        return int(match[0])

    def number(self) -> int | float | None:
        """Read an int or float literal; None if none is next."""
        nan = self.take(_NAN)
        if nan is not None:
            bits: tuple[float] = struct.unpack(">d", bytes.fromhex(nan[1] or "7ff8000000000000"))
            return bits[0]
        match = self.take(_NUMBER)
        if match is None:
            return None
        text = match[0]
        if len(text) > _MAX_NUMBER_CHARS:
            raise self.error(f"number of {len(text)} characters", match.start())
        is_float = text.endswith("inf") or match[1] is not None or match[2] is not None
        return float(text) if is_float else int(text)

    def bound(self, depth: int) -> None:
        """Raise an IRError if text is nested deeper than MAX_NESTING, as no kernel is."""
        if depth > MAX_NESTING:
            raise self.error(f"nested deeper than {MAX_NESTING}")


_DIMENSION = re.compile(r"(\d{1,10})x")
# No GPU has as many threads, registers or bytes of shared memory.
_MAX_LAYOUT_BITS = 64
_LAYOUT_KINDS = ("ttg.linear", "ttg.shared_linear")


class AttributeParser(Cursor):
    """A cursor that knows the grammar of everything but operations, blocks and regions."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._layouts: dict[str, LinearLayout] = {}

    # Types

    def type(self, depth: int = 0) -> Type:
        """A type."""
        self.bound(depth)
        start = self.position
        if self.accept("!"):
            return self._dialect_type(depth)
        word = self.word()
        if word in SCALARS:
            return SCALARS[word]
        if word == "tensor":
            return self._tensor_type(depth)
        self.position = start
        raise self.expected("a type such as i32, tensor<8xf32> or !tt.ptr<f16>")

    def _dialect_type(self, depth: int) -> Type:
        name = self.word()
        if name == "ttg.async.token":
            return TOKEN
        if name == "ttg.memdesc":
            return self._buffer_type(depth)
        if name not in ("tt.ptr", "tt.tensordesc"):
            raise self.error(
                f"got type !{name}, expected !tt.ptr, !tt.tensordesc, !ttg.memdesc or "
                "!ttg.async.token"
            )
        self.expect("<")
        start = self.position
        inner = self.type(depth + 1)
        self.expect(">")
        if name == "tt.ptr" and isinstance(inner, ScalarType | PointerType):
            return PointerType(inner)
        if name == "tt.tensordesc" and isinstance(inner, TensorType):
            return DescriptorType(inner)
        wanted = "a scalar or pointer" if name == "tt.ptr" else "a tensor"
        raise self.error(f"got {inner} inside !{name}<>, expected {wanted}", start)

    def _tensor_type(self, depth: int) -> Type:
        self.expect("<")
        shape, element = self._shape_and_element("tensor", depth)
        encoding = self.layout() if self.accept(",") else None
        self.expect(">")
        return TensorType(shape, element, encoding)

    def _buffer_type(self, depth: int) -> Type:
        self.expect("<")
        shape, element = self._shape_and_element("buffer", depth)
        self.expect(",")
        layout = self.layout()
        mutable = self.accept(",")
        if mutable:
            self.expect_word("mutable")
        self.expect(">")
        return MemDescType(shape, element, layout, mutable)

    def _shape_and_element(
        self, what: str, depth: int
    ) -> tuple[tuple[int, ...], ScalarType | PointerType]:
        shape = []
        while match := self.take(_DIMENSION):
            shape.append(int(match[1]))
            self.bound(len(shape))
        start = self.position
        element = self.type(depth + 1)
        if not isinstance(element, ScalarType | PointerType):
            raise self.error(f"got {what} element {element}, expected a scalar or pointer", start)
        return tuple(shape), element

    # Layouts

    def layout_alias(self) -> None:
        """Read `#name = layout` and remember it."""
        start = self.position
        self.expect("#")
        name = self.name("a layout's name")
        if name in self._layouts:
            raise self.error(f"layout #{name} is given twice", start)
        self.expect("=")
        self._layouts[name] = self.layout()

    def layout(self) -> LinearLayout:
        """A layout, in full or by its alias."""
        self.skip()
        start = self.position
        self.expect("#")
        name = self.name("a layout's name")
        if name in _LAYOUT_KINDS:
            return self._full_layout(start)
        if name not in self._layouts:
            kinds = " or ".join(f"#{kind}<…>" for kind in _LAYOUT_KINDS)
            raise self.error(f"layout #{name} is not defined above; expected {kinds}", start)
        return self._layouts[name]

    def _full_layout(self, start: int) -> LinearLayout:
        self.expect("<")
        self.expect("{")
        bases: dict[str, list[list[int]]] = {}
        outs: dict[str, int] | None = None
        while not self.accept("}"):
            if bases:
                self.expect(",")
            name = self.name("an input dimension of the layout")
            self.expect("=")
            if name == "outs":
                outs = self._outs()
                self.expect("}")
                break
            bases[name] = self._int_lists()
        self.expect(">")
        if sum(map(len, bases.values())) > _MAX_LAYOUT_BITS:
            raise self.error(f"a layout with more than {_MAX_LAYOUT_BITS} basis vectors", start)
        try:
            return LinearLayout.of(bases, dict(implied_outs(bases)) if outs is None else outs)
        except LayoutError as error:
            raise self.error(str(error), start) from None
        except ValueError:
            raise self.error("basis vectors of different lengths", start) from None

    def _outs(self) -> dict[str, int]:
        outs: dict[str, int] = {}
        self.expect("{")
        while not self.accept("}"):
            if outs:
                self.expect(",")
            name = self.name("an output dimension of the layout")
            self.expect("=")
            outs[name] = self.integer("a size")
        return outs

    def _int_lists(self) -> list[list[int]]:
        vectors: list[list[int]] = []
        self.expect("[")
        while not self.accept("]"):
            if vectors:
                self.expect(",")
            vector: list[int] = []
            self.expect("[")
            while not self.accept("]"):
                if vector:
                    self.expect(",")
                vector.append(self.integer("a coordinate"))
                self.bound(len(vector))
            vectors.append(vector)
        return vectors

    # Attributes

    def attributes(self) -> dict[str, Attribute]:
        """`{name = value, …}`, or nothing."""
        attributes: dict[str, Attribute] = {}
        if not self.accept("{"):
            return attributes
        if self.accept("}"):
            return attributes
        while True:
            start = self.position
            name = self.name("an attribute name")
            if name in attributes:
                raise self.error(f"attribute {name} is given twice", start)
            self.expect("=")
            attributes[name] = self.attribute()
            if not self.accept(","):
                self.expect("}")
                return attributes

    def attribute(self, depth: int = 0) -> Attribute:
        """An attribute value."""
        self.bound(depth)
        if self.looking_at('"'):
            return self.string_value()
        if self.looking_at("#"):
            return self.layout()
        if self.accept("["):
            return self._tuple(depth)
        number = self.number()
        if number is not None:
            return number
        for word, value in (("true", True), ("false", False), ("none", None)):
            if self.accept_word(word):
                return value
        if not (self.looking_at("!") or self.at_word()):
            raise self.expected("an attribute value")
        type_ = self.type()
        if not isinstance(type_, ScalarType | PointerType):
            raise self.error(f"got attribute {type_}, expected a scalar or pointer type")
        return type_

    def _tuple(self, depth: int) -> tuple[Attribute, ...]:
        items: list[Attribute] = []
        if self.accept("]"):
            return ()
        while True:
            items.append(self.attribute(depth + 1))
            if not self.accept(","):
                self.expect("]")
                return tuple(items)

    # Locations

    def location(self) -> Location:
        """The location inside `loc(...)`."""
        if not self.accept_word("fused"):
            return self._place()
        self.expect("[")
        places = [self._place()]
        while self.accept(","):
            places.append(self._place())
        self.expect("]")
        return FusedLocation(tuple(places))

    def _place(self) -> SourceLocation:
        steps = [self._step()]
        while self.accept_word("at"):
            steps.append(self._step())
            self.bound(len(steps))
        place: SourceLocation | None = None
        for file, line, column, function in reversed(steps):
            place = SourceLocation(file, line, column, function, place)
        assert place is not None
        return place

    def _step(self) -> tuple[str, int, int, str]:
        file = self.string_value()
        self.expect(":")
        line = self.integer("a line number")
        self.expect(":")
        column = self.integer("a column")
        self.expect_word("in")
        return file, line, column, self.string_value()
