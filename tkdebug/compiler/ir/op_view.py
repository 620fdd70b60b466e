"""Typed views of operations: the names of an op's operands, results and attributes.

One `OpView` class per op declares them (`tkdebug.compiler.dialects`); `Load(op).mask` reads through
the operation and copies nothing. Declarations are in the order of the operands: first those that
are always there, then optional or variadic ones. Several variadic groups have equal lengths;
optional operands are there from the left, or where the attribute `present` holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, overload

from tkdebug.compiler.ir import types as ir
from tkdebug.compiler.ir.core import Attribute, Operation, Value
from tkdebug.compiler.ir.types import Type
from tkdebug.compiler.layouts.linear import LinearLayout

T = TypeVar("T")
V = TypeVar("V", bound="OpView")
_REQUIRED: Any = object()


@dataclass(frozen=True, slots=True)
class Kind:
    """A set of types.

    Attributes:
        text: its name in messages: "got f32, expected integers".
    """

    text: str
    holds: Callable[[Type], bool]


def _elements(text: str, holds: Callable[[ir.ScalarType | ir.PointerType], bool]) -> Kind:
    """Scalars, and tiles of elements, for which `holds`."""
    shaped = ir.ScalarType | ir.PointerType | ir.TensorType
    return Kind(text, lambda type_: isinstance(type_, shaped) and holds(ir.element_of(type_)))


ANY = Kind("any type", lambda type_: True)
VALUES = _elements("numbers or pointers", lambda element: True)
NUMBERS = _elements("numbers", lambda element: isinstance(element, ir.ScalarType))
INTEGERS = _elements(
    "integers", lambda element: isinstance(element, ir.ScalarType) and element.is_integer
)
FLOATS = _elements(
    "floats", lambda element: isinstance(element, ir.ScalarType) and element.is_float
)
POINTERS = _elements("pointers", lambda element: isinstance(element, ir.PointerType))
CONDITIONS = _elements("i1", lambda element: element == ir.I1)
SCALARS = Kind(
    "a scalar or pointer", lambda type_: isinstance(type_, ir.ScalarType | ir.PointerType)
)
INTEGER = Kind(
    "an integer scalar", lambda type_: isinstance(type_, ir.ScalarType) and type_.is_integer
)
POINTER = Kind("a pointer", lambda type_: isinstance(type_, ir.PointerType))
I1 = Kind("i1", lambda type_: type_ == ir.I1)
I32 = Kind("i32", lambda type_: type_ == ir.I32)
I64 = Kind("i64", lambda type_: type_ == ir.I64)
TILES = Kind("a tile", lambda type_: isinstance(type_, ir.TensorType))
DESCRIPTORS = Kind("a descriptor", lambda type_: isinstance(type_, ir.DescriptorType))
BUFFERS = Kind("a shared-memory buffer", lambda type_: isinstance(type_, ir.MemDescType))
TOKENS = Kind("tokens of async copies", lambda type_: isinstance(type_, ir.TokenType))
TILES_OR_BUFFERS = Kind(
    "a tile or a buffer", lambda type_: isinstance(type_, ir.TensorType | ir.MemDescType)
)


class _Place:
    """The position of a declared name among the operands or results of an op."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.name = ""
        self.index = 0

    def __set_name__(self, owner: type[OpView], name: str) -> None:
        self.name = name


class OperandDef(_Place):
    """An operand that is always there."""

    @overload
    def __get__(self, view: None, owner: type[OpView]) -> OperandDef: ...
    @overload
    def __get__(self, view: OpView, owner: type[OpView]) -> Value: ...
    def __get__(self, view: OpView | None, owner: type[OpView]) -> OperandDef | Value:
        return self if view is None else view.op.operands[self.index]

    def __set__(self, view: OpView, value: Value) -> None:
        operands = view.op.operands
        view.op.operands = (*operands[: self.index], value, *operands[self.index + 1 :])


class OptionalOperandDef(_Place):
    """An operand that may be missing: one of the last, or one whose `present` is false."""

    def __init__(self, kind: Kind, present: str | None) -> None:
        super().__init__(kind)
        self.present = present
        self.earlier: tuple[OptionalOperandDef, ...] = ()

    @overload
    def __get__(self, view: None, owner: type[OpView]) -> OptionalOperandDef: ...
    @overload
    def __get__(self, view: OpView, owner: type[OpView]) -> Value | None: ...
    def __get__(
        self, view: OpView | None, owner: type[OpView]
    ) -> OptionalOperandDef | Value | None:
        if view is None:
            return self
        operands = view.op.operands
        if self.present is None:
            return operands[self.index] if self.index < len(operands) else None
        if not self.is_present(view.op):
            return None
        return operands[self.index - sum(not other.is_present(view.op) for other in self.earlier)]

    def is_present(self, op: Operation) -> bool:
        """Whether the attribute says that `op` has it."""
        assert self.present is not None
        return bool(op.attributes.get(self.present))


class VariadicOperandsDef(_Place):
    """Any number of operands, after all others."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind)
        self.groups = 1
        self.ordinal = 0

    @overload
    def __get__(self, view: None, owner: type[OpView]) -> VariadicOperandsDef: ...
    @overload
    def __get__(self, view: OpView, owner: type[OpView]) -> tuple[Value, ...]: ...
    def __get__(
        self, view: OpView | None, owner: type[OpView]
    ) -> VariadicOperandsDef | tuple[Value, ...]:
        if view is None:
            return self
        operands = view.op.operands
        if self.groups == 1:
            return operands[self.index :]
        size = (len(operands) - self.index) // self.groups
        first = self.index + self.ordinal * size
        return operands[first : first + size]

    def __set__(self, view: OpView, values: Sequence[Value]) -> None:
        assert self.groups == 1, f"{view.name} has several variadic groups"
        view.op.operands = (*view.op.operands[: self.index], *values)


class ResultDef(_Place):
    """A result that is always there."""

    @overload
    def __get__(self, view: None, owner: type[OpView]) -> ResultDef: ...
    @overload
    def __get__(self, view: OpView, owner: type[OpView]) -> Value: ...
    def __get__(self, view: OpView | None, owner: type[OpView]) -> ResultDef | Value:
        return self if view is None else view.op.results[self.index]


class VariadicResultsDef(_Place):
    """Any number of results."""

    @overload
    def __get__(self, view: None, owner: type[OpView]) -> VariadicResultsDef: ...
    @overload
    def __get__(self, view: OpView, owner: type[OpView]) -> tuple[Value, ...]: ...
    def __get__(
        self, view: OpView | None, owner: type[OpView]
    ) -> VariadicResultsDef | tuple[Value, ...]:
        return self if view is None else view.op.results[self.index :]


class AttributeDef(Generic[T]):
    """An attribute by its name in IR text.

    A default replaces a missing one; setting it to None, or deleting it, removes it.

    Attributes:
        is_required: whether every op has it.
    """

    def __init__(
        self,
        key: str,
        types: tuple[object, ...],
        default: T = _REQUIRED,
        is_late: bool = False,
    ) -> None:
        self.key = key
        self.types = types
        self.default = default
        self.is_required = default is _REQUIRED and not is_late

    @overload
    def __get__(self, view: None, owner: type[OpView]) -> AttributeDef[T]: ...
    @overload
    def __get__(self, view: OpView, owner: type[OpView]) -> T: ...
    def __get__(self, view: OpView | None, owner: type[OpView]) -> AttributeDef[T] | T:
        if view is None:
            return self
        attributes = view.op.attributes
        if self.default is _REQUIRED:
            return attributes[self.key]  # type: ignore[return-value]
        return attributes.get(self.key, self.default)  # type: ignore[return-value]

    def __set__(self, view: OpView, value: T) -> None:
        if value is None:
            view.op.attributes.pop(self.key, None)
        else:
            view.op.attributes[self.key] = value  # type: ignore[assignment]

    def __delete__(self, view: OpView) -> None:
        view.op.attributes.pop(self.key, None)

    def holds(self, value: Attribute) -> bool:
        """Whether `value` is of one of the declared types."""
        return any(_is_of(value, type_) for type_ in self.types)


def _is_of(value: Attribute, type_: object) -> bool:
    if type_ == tuple[int, ...]:
        return isinstance(value, tuple) and all(_is_of(item, int) for item in value)
    if type_ == tuple[bool, ...]:
        return isinstance(value, tuple) and all(_is_of(item, bool) for item in value)
    if type_ == tuple[str, ...]:
        return isinstance(value, tuple) and all(_is_of(item, str) for item in value)
    if type_ is int and isinstance(value, bool):
        return False
    assert isinstance(type_, type), f"{type_} is no type of attributes"
    return isinstance(value, type_)


# The functions that declarations are written with.


def operand_def(kind: Kind = ANY) -> OperandDef:
    """An operand that is always there."""
    return OperandDef(kind)


def optional_operand_def(kind: Kind = ANY, present: str | None = None) -> OptionalOperandDef:
    """An operand that may be missing; `present` is the attribute that says whether it is there."""
    return OptionalOperandDef(kind, present)


def variadic_operands_def(kind: Kind = ANY) -> VariadicOperandsDef:
    """Any number of operands."""
    return VariadicOperandsDef(kind)


def result_def(kind: Kind = ANY) -> ResultDef:
    """A result."""
    return ResultDef(kind)


def variadic_results_def(kind: Kind = ANY) -> VariadicResultsDef:
    """Any number of results."""
    return VariadicResultsDef(kind)


def attribute_def(key: str, type_: type[T], default: T = _REQUIRED) -> AttributeDef[T]:
    """An attribute; required unless it has a default."""
    return AttributeDef(key, (type_,), default)


def late_attribute_def(key: str, type_: type[T]) -> AttributeDef[T]:
    """An attribute that a pass sets, and that is only read after that pass."""
    return AttributeDef(key, (type_,), is_late=True)


def optional_attribute_def(key: str, type_: type[T]) -> AttributeDef[T | None]:
    """An attribute that may be missing, which is None."""
    return AttributeDef(key, (type_,), None)


@dataclass(frozen=True, slots=True)
class Declaration:
    """The declarations of a view class, in order.

    Attributes:
        operands: always there; then come either optional or variadic ones.
    """

    operands: tuple[OperandDef, ...]
    optional: tuple[OptionalOperandDef, ...]
    variadic: tuple[VariadicOperandsDef, ...]
    results: tuple[ResultDef, ...]
    variadic_results: tuple[VariadicResultsDef, ...]
    attributes: tuple[AttributeDef[Any], ...]

    def accepts_operands(self, op: Operation) -> bool:
        """Whether `op` has a possible number of operands."""
        rest = len(op.operands) - len(self.operands)
        if self.variadic:
            return rest >= 0 and rest % len(self.variadic) == 0
        if any(optional.present is not None for optional in self.optional):
            return rest == sum(optional.is_present(op) for optional in self.optional)
        return 0 <= rest <= len(self.optional)

    def operand_count(self, op: Operation) -> str:
        """The number of operands that `op` should have, as text for messages."""
        least = len(self.operands)
        if self.variadic:
            step = len(self.variadic)
            return f"at least {least}" if step == 1 else f"{least} and {step} equal groups"
        if any(optional.present is not None for optional in self.optional):
            return str(least + sum(optional.is_present(op) for optional in self.optional))
        return f"{least} to {least + len(self.optional)}" if self.optional else str(least)


# In the order of the fields of `Declaration`.
_DEFS = (
    OperandDef,
    OptionalOperandDef,
    VariadicOperandsDef,
    ResultDef,
    VariadicResultsDef,
    AttributeDef,
)


class _WithoutDict(type):
    """Gives every view class empty slots, so that a misspelt name cannot be assigned."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> _WithoutDict:
        namespace.setdefault("__slots__", ())
        return super().__new__(cls, name, bases, namespace)


class OpView(metaclass=_WithoutDict):
    """An operation of one op, or of one of several that share names.

    Attributes:
        name: the op, as in MLIR; "" in classes that only share declarations.
        names: the ops that the class is a view of.
        declaration: its declarations.
    """

    __slots__ = ("op",)
    name: ClassVar[str] = ""
    names: ClassVar[frozenset[str]] = frozenset()
    declaration: ClassVar[Declaration]

    # Set by passes on ops of many kinds: the layout that an op computes in, and where its part of
    # the scratch space in shared memory begins, in bytes.
    layout = AttributeDef["LinearLayout | None"]("layout", (LinearLayout,), None)
    scratch_offset = AttributeDef["int | None"]("scratch_offset", (int,), None)
    # Number of the site that the op is, in kernels that are checked as they run.
    site = AttributeDef["int | None"]("site", (int,), None)
    # Number of the site for the values that the op stores, likewise.
    value_site = AttributeDef["int | None"]("value_site", (int,), None)

    op: Operation
    _classes: ClassVar[dict[str, type[OpView]]] = {}

    def __new__(cls: type[V], op: Operation) -> V:
        """Return the view of `op`, by the class of its op."""
        assert op.name in cls.names, f"got {op.name}, expected one of {sorted(cls.names)}"
        view = object.__new__(cls if cls.name else OpView._classes[op.name])
        view.op = op
        return view  # type: ignore[return-value]

    def __init_subclass__(cls) -> None:
        cls.names = frozenset()
        cls.declaration = _declaration(cls)
        if "name" in vars(cls):
            OpView._classes[cls.name] = cls
            for view in cls.__mro__:
                if issubclass(view, OpView):
                    view.names |= {cls.name}

    @classmethod
    def matches(cls, op: Operation | None) -> bool:
        """Whether `op` is an op of this class, or of one of its subclasses."""
        return op is not None and op.name in cls.names

    @classmethod
    def cast(cls: type[V], op: Operation | None) -> V | None:
        """The view of `op`, None if `op` is of another op."""
        return cls(op) if op is not None and op.name in cls.names else None

    @classmethod
    def defining(cls: type[V], value: Value) -> V | None:
        """The view of the op that defines `value`, or None if that op is another one."""
        owner = value.owner
        return cls(owner) if isinstance(owner, Operation) and owner.name in cls.names else None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.op!r}>"


def _declaration(cls: type[OpView]) -> Declaration:
    """Collects the declarations of `cls` and its bases, and gives each name its place."""
    declared: dict[type, list[Any]] = {type_: [] for type_ in _DEFS}
    for base in reversed(cls.__mro__):
        for value in vars(base).values():
            found = declared.get(type(value))
            if found is not None:
                found.append(value)
    operands, optional, variadic, results, several, attributes = map(tuple, declared.values())
    assert not (optional and variadic), f"{cls.__name__}: optional and variadic operands"
    for places in ((*operands, *optional), results):
        for index, place in enumerate(places):
            # A name that a shared class declares has the same place in every op of the class.
            assert place.index in (0, index), f"{cls.__name__}.{place.name} has two places"
            place.index = index
    for index, later in enumerate(optional):
        later.earlier = optional[:index]
    for index, group in enumerate(variadic):
        group.index, group.groups, group.ordinal = len(operands), len(variadic), index
    for group_of_results in several:
        group_of_results.index = len(results)
    return Declaration(operands, optional, variadic, results, several, attributes)


OpName = str | type[OpView]


def op_name(op: OpName) -> str:
    """The name of an op given by its name or its view class."""
    return op if isinstance(op, str) else op.name


def names_of(*views: type[OpView]) -> frozenset[str]:
    """The names of several ops."""
    return frozenset().union(*(view.names for view in views))
