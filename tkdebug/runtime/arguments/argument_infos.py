"""Descriptions of a launch's arguments for hooks: names, types, shapes, values of scalars.

Every recorded launch comes here, and most pass arguments that look like earlier ones, so results
are cached by the visible properties of the arguments. Invariants: no value of a tensor is read (its
GPU would be waited for), and no argument is held on to.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping, Sequence
from typing import Any

from tkdebug.records.events import ArgumentInfo
from tkdebug.runtime.arguments.specialize import constant_key, is_tensor_like

SHOWN_VALUE_CHARS = 80
_MAX_KEPT = 256
_SCALARS = frozenset((int, float, bool, str, type(None)))

Infos = tuple[ArgumentInfo, ...]


class ArgumentInfos:
    """Describes the arguments of one compiled kernel's launches.

    Args:
        signature: each parameter's type as upstream writes it, by name.
        constants: names of parameters whose values the kernel was compiled with.
    """

    def __init__(self, signature: Mapping[str, object], constants: Container[str]) -> None:
        self._parameters = tuple((name, str(kind)) for name, kind in signature.items())
        self._passed = tuple(name not in constants for name in signature)
        self._kept: dict[Hashable, Infos] = {}

    def of(self, values: Sequence[Any]) -> Infos:
        """Describe `values`, one for each parameter; values that look alike get the same tuple."""
        try:
            looks = tuple(
                [
                    _look(value) if is_passed else None
                    for is_passed, value in zip(self._passed, values, strict=True)
                ]
            )
            infos = self._kept.get(looks)
        except _UnlikeOthers:
            return self._described(values)
        if infos is None:
            if len(self._kept) >= _MAX_KEPT:
                self._kept.clear()
            infos = self._kept[looks] = self._described(values)
        return infos

    def _described(self, values: Sequence[Any]) -> Infos:
        return tuple(
            [
                _describe(name, kind, value)
                for (name, kind), value in zip(self._parameters, values, strict=True)
            ]
        )


class _UnlikeOthers(Exception):
    """An argument needs more than a short look: it is a tuple, a descriptor or an object."""


def _look(value: Any) -> Hashable:
    """Return a key of `value`, which differs if values are described differently."""
    if value.__class__ in _SCALARS:
        return constant_key(value)
    try:
        if hasattr(value, "untyped_storage"):
            return value.dtype, value.shape, value.stride()
    except Exception as error:  # of a tensor without strides, or a subclass of the user's
        raise _UnlikeOthers from error
    raise _UnlikeOthers


def _describe(name: str, kind: str, value: Any) -> ArgumentInfo:
    if value.__class__ in _SCALARS:
        return ArgumentInfo(name, kind, shown_value(value))
    described = value if is_tensor_like(value) else getattr(value, "base", None)
    if described is not value and not is_tensor_like(described):
        return ArgumentInfo(name, kind, shown_value(value))
    text = _tensor_text(described)
    try:
        shape = tuple([int(size) for size in value.shape])
        strides = value.strides if hasattr(value, "strides") else value.stride()
        return ArgumentInfo(name, kind, text, shape, tuple([int(stride) for stride in strides]))
    except Exception:  # it has none, as a sparse tensor, or is of a class of the user's
        return ArgumentInfo(name, kind, text)


def shown_value(value: Any) -> str:
    """`value` in at most 80 characters."""
    if value.__class__ not in _SCALARS and is_tensor_like(value):
        return _tensor_text(value)
    text = f"({', '.join(map(shown_value, value))})" if isinstance(value, tuple) else _repr(value)
    return text if len(text) <= SHOWN_VALUE_CHARS else text[: SHOWN_VALUE_CHARS - 1] + "…"


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # of a class of the user's
        return object.__repr__(value)


def _tensor_text(tensor: Any) -> str:
    return f"a tensor of {tensor.dtype}"
