"""Kernel values as the front end moves them through control flow.

A value is a run-time value (tensor, descriptor, block pointer), a tuple of values, or a plain
Python object: a compile-time constant. `flatten` gives the IR values inside, `rebuild` puts
others in their place, `kind` says whether two values can stand for the same variable.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tkdebug.compiler.aggregates import constant_places
from tkdebug.compiler.dialects import arith
from tkdebug.compiler.dtypes import dtype
from tkdebug.compiler.frontend.arguments import remake
from tkdebug.compiler.ir import Value
from tkdebug.compiler.tensor import block_pointer, is_runtime, tensor, tensor_descriptor


def has_runtime(value: object) -> bool:
    """Whether `value` is, or is a tuple that holds, a run-time value."""
    if isinstance(value, tuple):
        return any(has_runtime(item) for item in value)
    return is_runtime(value)


def is_number(value: object) -> bool:
    """Whether `value` is a constant that an assignment turns into a tensor."""
    return isinstance(value, bool | int | float)


def has_number(value: object) -> bool:
    """Whether `value` is, or is a tuple that holds, a constant that becomes a tensor."""
    found: list[Any] = []
    map_numbers(value, found.append)
    return bool(found)


def flatten(value: object) -> list[Value]:
    """The IR values inside `value`, in a fixed order."""
    if isinstance(value, tensor):
        return [value.value]
    if isinstance(value, tensor_descriptor):
        return [value.value, *(t.value for t in (*value.shape, *value.strides))]
    if isinstance(value, block_pointer):
        parts = (value.base, *value.shape, *value.strides, *value.offsets)
        return [part.value for part in parts]
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in flatten(item)]
    return []


def rebuild(like: Any, values: Iterator[Value]) -> Any:
    """`like` with its IR values replaced by the next ones of `values`."""
    if isinstance(like, tensor):
        return tensor(next(values), like.type)
    if isinstance(like, tensor_descriptor):
        own = next(values)
        shape, strides = _rebuild_all(like.shape, values), _rebuild_all(like.strides, values)
        return tensor_descriptor(own, like.type, shape, strides)
    if isinstance(like, block_pointer):
        return block_pointer(
            rebuild(like.base, values),
            _rebuild_all(like.shape, values),
            _rebuild_all(like.strides, values),
            _rebuild_all(like.offsets, values),
            like.block_shape,
            like.order,
        )
    if isinstance(like, tuple):
        return remake(like, [rebuild(item, values) for item in like])
    return like


def _rebuild_all(items: tuple[tensor, ...], values: Iterator[Value]) -> tuple[tensor, ...]:
    return tuple(rebuild(item, values) for item in items)


def kind(value: Any) -> object:
    """The kind of a value; two values of one kind can be one variable at run time."""
    if isinstance(value, tensor):
        return value.type
    if isinstance(value, tensor_descriptor):
        return value.type, kind(value.shape), kind(value.strides)
    if isinstance(value, block_pointer):
        parts = (value.base, value.shape, value.strides, value.offsets)
        return block_pointer, kind(parts), value.block_shape, value.order
    if isinstance(value, tuple):
        return type(value), tuple(kind(item) for item in value)
    return type(value), value


def same_constant(left: object, right: object) -> bool:
    """Whether two constants are the same one."""
    if left is right:
        return True
    if type(left) is not type(right):
        return False
    return bool(left == right)


def map_numbers(value: Any, convert: Callable[[Any], Any]) -> Any:
    """`value` with every constant number in it replaced by `convert(number)`."""
    if isinstance(value, tuple):
        fixed = constant_places(value)
        items = [
            item if place in fixed else map_numbers(item, convert)
            for place, item in enumerate(value)
        ]
        return remake(value, items)
    return convert(value) if is_number(value) else value


class MismatchError(Exception):
    """Two values of one variable that control flow cannot merge."""


def unify(
    left: Any, right: Any, left_tensor: Callable[[Any], Any], right_tensor: Callable[[Any], Any]
) -> tuple[Any, Any]:
    """Bring two values of one variable to one kind, making tensors of constants that differ.

    Raises:
        MismatchError: the two values are of different kinds.
    """
    if isinstance(left, tuple) and isinstance(right, tuple):
        if type(left) is not type(right) or len(left) != len(right):
            raise MismatchError
        for place in constant_places(left):
            if not same_constant(left[place], right[place]):
                raise MismatchError
        pairs = [unify(a, b, left_tensor, right_tensor) for a, b in zip(left, right, strict=True)]
        return remake(left, [a for a, _ in pairs]), remake(right, [b for _, b in pairs])
    if not is_runtime(left) and not is_runtime(right) and same_constant(left, right):
        return left, right
    left = left_tensor(left) if is_number(left) else left
    right = right_tensor(right) if is_number(right) else right
    if type(left) is not type(right) or kind(left) != kind(right):
        raise MismatchError
    return left, right


def known_constant(value: Any) -> Any:
    """The number that a scalar tensor was made from by `x = 3`, else `value` itself.

    Sound because it asks the SSA value: a variable that is re-assigned at run time is another
    value, which no `arith.constant` defines.
    """
    if not isinstance(value, tensor) or value.type.is_block():
        return value
    op = value.value.defining_op
    if op is None or not arith.Constant.matches(op):
        return value
    number = arith.Constant(op).value
    if isinstance(number, int) and isinstance(value.type, dtype):
        if value.type.is_bool():
            return bool(number)
        if value.type.is_int_unsigned() and number < 0:
            return number + (1 << value.type.primitive_bitwidth)
    return number


def scalar_int_type(value: tensor) -> dtype | None:
    """The dtype of a scalar integer, None for any other tensor."""
    type_ = value.type
    if isinstance(type_, dtype) and type_.is_int():
        return type_
    return None


def closest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: similar known names, or "" if there are none."""
    matches = difflib.get_close_matches(name, list(known), n=3, cutoff=0.7)
    return f"; did you mean {' or '.join(f'`{match}`' for match in matches)}?" if matches else ""
