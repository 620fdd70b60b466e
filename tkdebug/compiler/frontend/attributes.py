"""`x.name`: members of tensors and descriptors, of modules, of types and other constants."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tkdebug.compiler.aggregates import method_of
from tkdebug.compiler.describe import describe
from tkdebug.compiler.frontend.arguments import unwrap_deep
from tkdebug.compiler.frontend.values import closest, has_runtime
from tkdebug.compiler.frontend.visitor import Visitor
from tkdebug.compiler.ops import table
from tkdebug.compiler.ops.operators import OPERATOR_METHODS
from tkdebug.compiler.ops.spec import SemanticError
from tkdebug.compiler.tensor import (
    block_pointer,
    constexpr_type,
    is_runtime,
    tensor,
    tensor_descriptor,
)

_TENSOR_FIELDS = ("dtype", "shape", "type", "numel")
_DESCRIPTOR_FIELDS = ("dtype", "shape", "strides", "block_shape", "block_type", "type")
_BLOCK_POINTER_FIELDS = ("dtype", "type", "shape", "strides", "offsets", "base")
# Methods of tensor descriptors and the language functions that they are.
_DESCRIPTOR_METHODS = {
    "load": "load_tensor_descriptor",
    "store": "store_tensor_descriptor",
    **{
        name: f"descriptor_{name}"
        for name in (
            "gather",
            "scatter",
            "atomic_add",
            "atomic_min",
            "atomic_max",
            "atomic_and",
            "atomic_or",
            "atomic_xor",
        )
    },
}


@dataclass(frozen=True, slots=True)
class BoundMember:
    """A language function or jit function with its first argument: `x.sum`."""

    function: Any
    owner: Any


def visit_attribute(v: Visitor, node: ast.Attribute) -> Any:
    """The value of `node.value.node.attr`."""
    owner = v.expression(node.value)
    return attribute(v, owner, node.attr)


def attribute(v: Visitor, owner: Any, name: str) -> Any:
    """`owner.name`."""
    if isinstance(owner, ModuleType):
        return _module_attribute(v, owner, name)
    if is_runtime(owner):
        return _runtime_attribute(v, owner, name)
    method = method_of(owner, name)
    if method is not None:
        return BoundMember(method, owner)
    if name == "value" and not hasattr(owner, "value"):
        return owner
    if name == "type" and not hasattr(owner, "type") and not has_runtime(owner):
        return constexpr_type(owner)
    try:
        value = getattr(owner, name)
    except AttributeError:
        near = closest(name, [item for item in dir(owner) if not item.startswith("_")])
        raise SemanticError(f"{describe(owner)} has no attribute `{name}`{near}") from None
    return unwrap_deep(value)


def _module_attribute(v: Visitor, module: ModuleType, name: str) -> Any:
    try:
        value = getattr(module, name)
    except AttributeError:
        near = closest(name, [item for item in dir(module) if not item.startswith("_")])
        raise SemanticError(f"module `{module.__name__}` has no `{name}`{near}") from None
    # A module of the language resolves its functions on access and never changes.
    if name in vars(module) and not module.__name__.startswith("tkdebug"):
        v.surroundings.record(name, value, vars(module))
    return unwrap_deep(value)


def _runtime_attribute(v: Visitor, owner: Any, name: str) -> Any:
    fields: tuple[str, ...]
    match owner:
        case tensor():
            fields = _TENSOR_FIELDS
            if name == "T":
                return table.LANGUAGE["trans"].emit(v.emit, owner)
            if name in OPERATOR_METHODS:
                return BoundMember(OPERATOR_METHODS[name], owner)
            members = [key for key, builtin in table.LANGUAGE.items() if builtin.member]
        case tensor_descriptor():
            fields = _DESCRIPTOR_FIELDS
            members = list(_DESCRIPTOR_METHODS)
        case block_pointer():
            fields = _BLOCK_POINTER_FIELDS
            members = ["advance"]
        case _:
            raise AssertionError(f"unknown run-time value {owner!r}")
    if name in fields:
        return getattr(owner, name)
    if name in members:
        target = _DESCRIPTOR_METHODS[name] if isinstance(owner, tensor_descriptor) else name
        if target not in table.LANGUAGE:
            raise SemanticError(f"method `{name}` of tensor descriptors is not supported")
        return BoundMember(table.LANGUAGE[target], owner)
    near = closest(name, [*fields, *members])
    if not near and name in table.LANGUAGE:
        near = f"; call tl.{name}(x)"
    raise SemanticError(f"{describe(owner)} has no attribute `{name}`{near}")


def has_attribute(v: Visitor, owner: Any, name: str) -> bool:
    """Whether a kernel may read `owner.name`: `hasattr(owner, name)`."""
    try:
        attribute(v, owner, name)
    except SemanticError:
        return False
    return True
