"""A launch of a library's kernel in a file: which kernel, its arguments, its grid.

Read in two processes that share no compiler: one with tkdebug, one with upstream Triton. So nothing
of either is in the file, and nothing of either is imported here.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class Named:
    """A value that is no plain data, by its name: a dtype, a function, a descriptor."""

    kind: str
    parts: tuple[Any, ...]


@dataclass(frozen=True)
class Launch:
    """A kernel and what it was launched with.

    Attributes:
        module: the module of the kernel, or the file of one that has no importable module.
        name: its qualified name there.
        arguments: by parameter, constants too; tensors with the storages that they share.
        constants: the names of those that were compiled in.
    """

    module: str
    name: str
    grid: tuple[int, int, int]
    arguments: dict[str, Any]
    constants: tuple[str, ...]


class NotKept(Exception):
    """An argument cannot be written down; the message says which."""


class Packing:
    """Makes plain data of the arguments of one launch; bf16 becomes fp32.

    Upstream's interpreter computes with numpy, which has no bf16.
    """

    def __init__(self) -> None:
        self._widened: dict[int, torch.Tensor] = {}

    def packed_all(self, names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
        """The arguments by name.

        Raises:
            NotKept: one of them is of a kind that has no plain form.
        """
        return {name: self._packed(value) for name, value in zip(names, values, strict=True)}

    def _packed(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value.detach())
        if value is None or isinstance(value, bool | int | float | str | torch.dtype):
            return torch.float32 if value is torch.bfloat16 else value
        if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
            return tuple(self._packed(item) for item in value)
        kind = type(value).__name__
        if kind == "constexpr":
            return Named("constexpr", (self._packed(value.value),))
        if kind == "dtype" or hasattr(value, "primitive_bitwidth"):
            return Named("dtype", ("fp32" if str(value) == "bf16" else str(value),))
        if kind == "TensorDescriptor":
            parts = (value.base, value.shape, value.strides, value.block_shape)
            return Named("descriptor", tuple(self._packed(part) for part in parts))
        if hasattr(value, "fn"):
            return Named("function", place_of(value))
        raise NotKept(f"an argument of type {kind}")

    def _tensor(self, value: torch.Tensor) -> torch.Tensor:
        if value.dtype is not torch.bfloat16:
            return value
        storage = value.untyped_storage()
        if storage.data_ptr() not in self._widened:
            flat = value.as_strided((storage.nbytes() // 2,), (1,), 0)
            self._widened[storage.data_ptr()] = flat.float()
        wide = self._widened[storage.data_ptr()]
        return wide.as_strided(value.shape, value.stride(), value.storage_offset())


def unpacked(value: Any, language: Any) -> Any:
    """The argument that `packed` made `value` of, with a `triton.language` of the process."""
    if isinstance(value, tuple):
        return tuple(unpacked(item, language) for item in value)
    if not isinstance(value, Named):
        return value
    match value.kind:
        case "constexpr":
            return language.constexpr(unpacked(value.parts[0], language))
        case "dtype":
            return language.dtype(value.parts[0])
        case "function":
            return found(*value.parts)
        case "descriptor":
            from triton.tools.tensor_descriptor import TensorDescriptor

            base, *rest = (unpacked(part, language) for part in value.parts)
            return TensorDescriptor(base, *(list(part) for part in rest))
    raise AssertionError(value.kind)


def place_of(function: Any) -> tuple[str, str]:
    """Return where a jit function can be found again: module or file, and its name there."""
    while hasattr(function, "fn"):
        function = function.fn
    if "<locals>" in function.__qualname__:
        raise NotKept("a function that is defined in a function")
    module = sys.modules.get(function.__module__)
    file = function.__code__.co_filename
    is_in_package = "." in function.__module__
    if module is None or not is_in_package or not _is_found(module):
        return file, function.__qualname__
    return function.__module__, function.__qualname__


def _is_found(module: Any) -> bool:
    try:
        return importlib.util.find_spec(module.__name__) is not None
    except (ImportError, ValueError):
        return False


def found(module: str, name: str) -> Any:
    """The function that `place_of` gave the place of."""
    if module.endswith(".py"):
        known = f"corpus_{Path(module).stem}"
        if known not in sys.modules:
            spec = importlib.util.spec_from_file_location(known, module)
            assert spec is not None
            assert spec.loader is not None
            sys.modules[known] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[known])
        held: Any = sys.modules[known]
    else:
        held = importlib.import_module(module)
    for part in name.split("."):
        held = getattr(held, part)
    return held
