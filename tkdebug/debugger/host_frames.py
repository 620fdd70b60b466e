"""The frames of the script that launched a kernel: their places, variables and expressions."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

from tkdebug.debugger.expressions import Names, compile_expression, evaluate
from tkdebug.debugger.values import Constant, Reading
from tkdebug.errors import Frame

# Who runs scripts, and what a launch goes through: none of it is the script's.
_OTHERS = frozenset(
    ("tkdebug", "triton", "torch", "runpy", "threading", "importlib", "contextlib", "functools",
     "pytest", "_pytest", "pluggy", "xdist", "execnet")
)  # fmt: skip
_MOST = 32
_MOST_ITEMS = 1000


@dataclass(frozen=True, slots=True, eq=False)
class HostFrame:
    """A frame of Python's that waits for the launch."""

    place: Frame
    _frame: FrameType

    def variables(self) -> dict[str, Reading]:
        """Its locals; of a module those that are data. Long lists are shown by their length."""
        is_module = self.place.function == "<module>"
        return {
            name: Constant(_shown(value))
            for name, value in self._frame.f_locals.items()
            if not name.startswith("__") and not (is_module and _is_definition(value))
        }

    def read(self, name: str) -> Reading | None:
        """A local or global; None where there is none."""
        for names in (self._frame.f_locals, self._frame.f_globals):
            if name in names:
                return Constant(names[name])
        return None

    def evaluate(self, text: str) -> Any:
        """The value of an expression in this frame.

        Raises:
            EvaluationError: it raised.
        """

        def find(name: str) -> Any:
            spaces: tuple[Mapping[str, Any], ...] = (self._frame.f_locals, self._frame.f_globals)
            for names in spaces:
                if name in names:
                    return names[name]
            raise KeyError(name)

        return evaluate(compile_expression(text), Names(find), text)


class _Long:
    """Stands for a value whose text would be long, and take long to make."""

    def __init__(self, value: Any) -> None:
        self._text = f"{type(value).__name__} of {len(value):,}"

    def __repr__(self) -> str:
        return self._text


def _shown(value: Any) -> Any:
    is_long = isinstance(value, list | tuple | dict | set | frozenset | str | bytes | bytearray)
    return _Long(value) if is_long and len(value) > _MOST_ITEMS else value


def _is_definition(value: object) -> bool:
    kinds = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)
    return isinstance(value, kinds) or hasattr(value, "kernel_source") or hasattr(value, "fn")


def host_frames(innermost: FrameType | None) -> tuple[HostFrame, ...]:
    """The script's frames from `innermost` on outwards, up to its module."""
    found: list[HostFrame] = []
    at = innermost
    while at is not None and len(found) < _MOST:
        module = str(at.f_globals.get("__name__", ""))
        file, function = at.f_code.co_filename, at.f_code.co_name
        if module.partition(".")[0] not in _OTHERS and not file.startswith("<frozen "):
            found.append(HostFrame(Frame(file, at.f_lineno, function), at))
        if module == "__main__" and function == "<module>":
            break
        at = at.f_back
    return tuple(found)
