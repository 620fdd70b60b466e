"""`triton.aggregate`: classes whose objects kernels hold, a field a value.

An object is a tuple with names, so that whatever moves tuples through a kernel moves it, too. It is
immutable: `tl.aggregate_replace` makes another one.
"""

from __future__ import annotations

import hashlib
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from types import FunctionType
from typing import Any, ClassVar

from tkdebug.compiler.tensor import constexpr, is_jit_function, is_runtime, unwrap

_OWN = frozenset(["__init__", "__dict__", "__weakref__", "__annotations__", "__slots__"])


class _ContentKey:
    """A hash of an aggregate's fields and methods, part of the keys of kernels that use it."""

    def __get__(self, instance: object, owner: type[Aggregate]) -> str:
        hasher = hashlib.sha256(f"{owner.__qualname__}{owner._fields}".encode())
        for name, member in sorted(_members(owner).items()):
            key = member.cache_key if is_jit_function(member) else _text_of(member)
            hasher.update(f"{name}={key}".encode())
        return hasher.hexdigest()


def _text_of(member: object) -> str:
    return repr(member.__code__.co_code) if isinstance(member, FunctionType) else ""


def _members(owner: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for base in reversed(owner.__mro__):
        if issubclass(base, Aggregate) and base is not Aggregate:
            found |= vars(base)
    return found


class Aggregate(tuple[Any, ...]):
    """Base class of the classes that `aggregate` makes.

    Attributes:
        constant_fields: positions of the fields that are `tl.constexpr`.
        field_types: the annotations by field.
        field_defaults: values of fields that are not given.
        cache_key: changes with the class's source.
    """

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()
    field_types: ClassVar[Mapping[str, Any]] = {}
    field_defaults: ClassVar[Mapping[str, Any]] = {}
    _written_init: ClassVar[Callable[..., object] | None] = None
    constant_fields: ClassVar[frozenset[int]] = frozenset()
    cache_key: ClassVar[Any] = _ContentKey()

    def __new__(cls, *arguments: Any, **keywords: Any) -> Aggregate:
        """Return an object of the given fields, set by the class's own `__init__` if it has one."""
        if cls._written_init is not None:
            values = _initialised(cls, cls._written_init, arguments, keywords)
        else:
            values = _bound(cls, arguments, keywords)
        for name, value in values.items():
            _check(cls, name, value)
        return cls._make([values[name] for name in cls._fields])

    @classmethod
    def _make(cls, values: Iterable[Any]) -> Aggregate:
        return tuple.__new__(cls, values)

    def _replace(self, **changes: Any) -> Aggregate:
        """Return a copy of the object with the named fields changed.

        Raises:
            TypeError: there is no such field, or the value does not fit it.
        """
        values = {**dict(zip(self._fields, self, strict=True)), **changes}
        for name, value in changes.items():
            if name not in self._fields:
                raise TypeError(
                    f"{type(self).__name__} has no field '{name}'; it has {', '.join(self._fields)}"
                )
            _check(type(self), name, value)
        return self._make([values[name] for name in self._fields])

    def __repr__(self) -> str:
        fields = ", ".join(f"{n}={v!r}" for n, v in zip(self._fields, self, strict=True))
        return f"{type(self).__name__}({fields})"


def _bound(
    cls: type[Aggregate], arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    if len(arguments) > len(cls._fields):
        raise TypeError(
            f"{cls.__name__} has {len(cls._fields)} fields, got {len(arguments)} values"
        )
    values = dict(zip(cls._fields, arguments, strict=False))
    for name, value in keywords.items():
        if name not in cls._fields or name in values:
            problem = "got two values for" if name in values else "has no"
            raise TypeError(f"{cls.__name__} {problem} field '{name}'")
        values[name] = value
    values = {**cls.field_defaults, **values}
    missing = [name for name in cls._fields if name not in values]
    if missing:
        raise TypeError(f"{cls.__name__} needs a value for {', '.join(missing)}")
    return values


def _initialised(
    cls: type[Aggregate],
    init: Callable[..., object],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
) -> dict[str, Any]:
    # Objects are immutable: the fields are set on another one.
    draft = type(cls.__name__, (), {**_members(cls), "__slots__": ("__dict__",)})
    for name in ("__new__", "__repr__", *cls._fields):
        if name in vars(draft):
            delattr(draft, name)
    made: Any = object.__new__(draft)
    init(made, *arguments, **keywords)
    given: dict[str, Any] = vars(made)
    surplus = [name for name in given if name not in cls._fields]
    missing = [name for name in cls._fields if name not in given]
    if surplus:
        raise TypeError(f"{cls.__name__} has no field '{surplus[0]}'; annotate it in the class")
    if missing:
        raise TypeError(f"the constructor of {cls.__name__} does not set {', '.join(missing)}")
    return given


def _check(cls: type[Aggregate], name: str, value: Any) -> None:
    wanted = cls.field_types[name]
    if wanted is constexpr and is_runtime(value):
        raise TypeError(f"field '{name}' of {cls.__name__} is a tl.constexpr, got a run-time value")
    if isinstance(wanted, type) and issubclass(wanted, Aggregate):
        if not isinstance(value, wanted):
            got = type(value).__name__
            raise TypeError(f"field '{name}' of {cls.__name__} is a {wanted.__name__}, got {got}")


def aggregate(cls: type) -> type[Aggregate]:
    """Decorator: objects of the class can be made in kernels, passed to them and carried by loops.

    Annotations are its fields: `tl.tensor`, `tl.constexpr`, a tuple, another aggregate. Methods are
    jit functions, or functions of constants. A plain value given in the class is a default.

    Raises:
        TypeError: the class has a base that is no aggregate.
    """
    bases = [base for base in cls.__mro__[1:] if base not in (object, tuple, Aggregate)]
    for base in bases:
        if not issubclass(base, Aggregate):
            raise TypeError(
                f"aggregate {cls.__name__}: its base {base.__name__} is not one; decorate it, too"
            )
    types: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for base in reversed([base for base in bases if issubclass(base, Aggregate)]):
        types |= base.field_types
        defaults |= base.field_defaults
    own = _annotations(cls)
    types |= own
    values = {name: vars(cls)[name] for name in own if name in vars(cls)}
    defaults |= {name: unwrap(value) for name, value in values.items()}
    fields = tuple(types)
    members = {n: v for n, v in vars(cls).items() if n not in _OWN and n not in own}
    members |= {name: property(itemgetter(place)) for place, name in enumerate(fields)}
    init = vars(cls).get("__init__")
    members |= {
        "__slots__": (),
        "_fields": fields,
        "field_types": types,
        "field_defaults": defaults,
        "_written_init": staticmethod(init) if init is not None else None,
        "constant_fields": frozenset(i for i, n in enumerate(fields) if types[n] is constexpr),
    }
    direct = tuple(base for base in cls.__bases__ if base is not object) or (Aggregate,)
    return type(cls.__name__, direct, members)


def _annotations(cls: type) -> dict[str, Any]:
    written = inspect.get_annotations(cls)
    try:
        resolved = typing.get_type_hints(cls)
    except (NameError, TypeError):
        return written
    return {name: resolved[name] for name in written}


def method_of(value: object, name: str) -> Any:
    """The jit function of an aggregate's method `name`, or None if it has none."""
    if not isinstance(value, Aggregate):
        return None
    found = inspect.getattr_static(type(value), name, None)
    return found if is_jit_function(found) else None


def constant_places(value: tuple[Any, ...]) -> frozenset[int]:
    """The places of a tuple whose items stay constants: the constexpr fields of an aggregate."""
    return value.constant_fields if isinstance(value, Aggregate) else frozenset()
