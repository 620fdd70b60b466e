"""Finds which line of the script each operation of torch was called from, while it runs.

Responsible for noticing operations and the scopes around them: modules whose `forward` runs, and
`torch.profiler.record_function`. Operations are those that Python calls; operations that these call
belong to them. Invariant: an operation computes what it would without this.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import time_ns
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary

from tkdebug.records.scopes import SCOPES, Scope

# Called with when an operation began and ended, and the code object and line of its caller.
OperationNote = Callable[[int, int, CodeType, int], None]
_OWN = os.path.dirname(os.path.dirname(__file__)) + os.sep


class _Callers:
    """Finds the innermost frame that is neither torch's nor tkdebug's."""

    def __init__(self, torch_folder: str) -> None:
        self._skipped = (torch_folder + os.sep, _OWN)
        self._is_skipped: dict[CodeType, bool] = {}

    def caller(self) -> tuple[CodeType, int] | None:
        """Return the code and line of that frame, or None if there is none."""
        frame = sys._getframe(2)  # noqa: SLF001  # what `inspect` does, without its costs
        while frame is not None:
            code = frame.f_code
            skipped = self._is_skipped.get(code)
            if skipped is None:
                skipped = code.co_filename.startswith(self._skipped)
                self._is_skipped[code] = skipped
            if not skipped:
                return code, frame.f_lineno
            frame = frame.f_back  # type: ignore[assignment]
        return None


class _Entered(threading.local):
    """The modules whose `forward` runs in the calling thread."""

    def __init__(self) -> None:
        self.entered: list[tuple[Any, Scope | None]] = []


class _ModuleScopes:
    """A scope for each `forward` of a module, by the name that its parent has for it."""

    def __init__(self) -> None:
        self._names: WeakKeyDictionary[Any, dict[int, str]] = WeakKeyDictionary()
        self._here = _Entered()

    def enter(self, module: Any, arguments: Any) -> None:
        """Enter the scope of a module, before its `forward`."""
        entered = self._here.entered
        parent = entered[-1][0] if entered else None
        name = type(module).__name__
        if parent is not None:
            name = self._children_of(parent).get(id(module), name)
        entered.append((module, SCOPES.enter(name)))

    def exit(self, module: Any, arguments: Any, output: Any) -> None:
        """Leave the scope of a module, after its `forward` or where that raised."""
        while self._here.entered:
            entered, scope = self._here.entered.pop()
            if scope is not None:
                SCOPES.exit(scope)
            if entered is module:
                return

    def _children_of(self, parent: Any) -> Mapping[int, str]:
        names = self._names.get(parent)
        if names is None:
            names = {id(child): name for name, child in parent.named_modules() if name}
            self._names[parent] = names
        return names


@contextmanager
def op_origins(note: OperationNote) -> Iterator[None]:
    """Report the operations of this thread, and follow scopes, inside the `with` block."""
    import torch
    from torch.nn.modules import module as modules
    from torch.overrides import TorchFunctionMode

    callers = _Callers(os.path.dirname(torch.__file__))

    class Origins(TorchFunctionMode):
        def __torch_function__(
            self,
            function: Callable[..., Any],
            types: Sequence[type],
            arguments: Sequence[Any] = (),
            options: Mapping[str, Any] | None = None,
        ) -> Any:
            start_ns = time_ns()
            try:
                return function(*arguments, **(options or {}))
            finally:
                found = callers.caller()
                if found is not None:
                    note(start_ns, time_ns(), *found)

    scopes = _ModuleScopes()
    handles = (
        modules.register_module_forward_pre_hook(scopes.enter),
        modules.register_module_forward_hook(scopes.exit, always_call=True),
    )
    mode: Any = Origins
    with mode(), _record_function_scopes():
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


@contextmanager
def _record_function_scopes() -> Iterator[None]:
    """Make `record_function` enter a scope, too."""
    from torch.autograd import profiler

    record_function: Any = profiler.record_function
    enter, exit = record_function.__enter__, record_function.__exit__
    entered: dict[int, Scope | None] = {}

    def enter_scope(self: Any) -> Any:
        entered[id(self)] = SCOPES.enter(str(self.name))
        return enter(self)

    def exit_scope(self: Any, *error: Any) -> Any:
        scope = entered.pop(id(self), None)
        if scope is not None:
            SCOPES.exit(scope)
        return exit(self, *error)

    record_function.__enter__, record_function.__exit__ = enter_scope, exit_scope
    try:
        yield
    finally:
        record_function.__enter__, record_function.__exit__ = enter, exit
