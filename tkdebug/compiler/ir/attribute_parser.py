"""Reads what stands around operations in IR text: types, layouts, attributes and locations."""

from __future__ import annotations

import re

from tkdebug.compiler.ir.core import Attribute
from tkdebug.compiler.ir.cursor import Cursor
from tkdebug.compiler.ir.layout_text import implied_outs
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
)
from tkdebug.compiler.layouts.linear import LayoutError, LinearLayout

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
        """What stands inside `loc(...)`."""
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
