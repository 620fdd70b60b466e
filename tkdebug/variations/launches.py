"""Launches of a script whose inputs are kept, so that they can run again and again.

Invariant: a kept launch has memory of its own; the script's is never written.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.errors import UsageError
from tkdebug.interpreter.memory.host_views import host_view
from tkdebug.records.hook_chain import HOOKS
from tkdebug.runtime.arguments.specialize import alignment_key
from tkdebug.runtime.launch.requests import REQUEST, LaunchRequest
from tkdebug.variations.grids import scaled_grid

if TYPE_CHECKING:
    from tkdebug.records.events import LaunchRecord
    from tkdebug.runtime.compile.specialization import Specialization
    from tkdebug.runtime.launch.interpreted_kernel import InterpretedKernel
    from tkdebug.runtime.launch.requests import Grid

# Fills an allocation's copy: gets the copy as bytes.
Fill = Callable[[Tensor], None]


@dataclass(frozen=True, slots=True)
class KeptLaunch:
    """A launch with its inputs as they were before it.

    Attributes:
        number: among the script's launches, from 1 on.
        values: one for each parameter; their tensors are in memory of the launch's own.
        request: the script's request, on that memory; None if it is not known.
    """

    kernel: InterpretedKernel
    grid: Grid
    number: int
    values: tuple[Any, ...]
    request: LaunchRequest | None = None

    @property
    def src(self) -> Specialization:
        """The specialization of its kernel."""
        return self.kernel.src

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self.kernel.name

    @property
    def size_bytes(self) -> int:
        """The size of all its memory."""
        return _size_bytes(self.values)

    def fresh(self, fill: Fill | None = None) -> tuple[Any, ...]:
        """Return the values on copies of all memory.

        Args:
            fill: alters each copy.
        """
        return tuple(_moved(self.values, _Copies(fill)))

    def again(self, changes: Mapping[str, Any], config: Any = None) -> KeptLaunch:
        """Return the launch with other meta-parameters or options; nothing runs.

        Args:
            changes: by name.
            config: a tuner's configuration, in place of the chosen one.

        Raises:
            TkError: it does not compile, or its grid cannot be known.
        """
        request, args, grid, given = self._asked(changes, config)
        catcher = _Catcher(self.number)
        before, HOOKS.debugger = HOOKS.debugger, catcher
        try:
            request.runner.run(*args, grid=grid, warmup=False, **given)
        finally:
            HOOKS.debugger = before
        if catcher.launch_made is None:
            raise UsageError(f"{self.name}: with {changes} it has no programs")
        return replace(catcher.launch_made, request=request)

    def relaunch(self) -> dict[str, Tensor]:
        """Launch as the script does, in the mode in force, on copies of all memory.

        Returns:
            The tensors after it, by the names of parameters.

        Raises:
            TkError: it does not compile, or how the script launches it is not known.
        """
        request, args, grid, given = self._asked({}, None)
        request.runner.run(*args, grid=grid, warmup=False, **given)
        found: dict[str, Tensor] = {}
        for name, value in (*zip(request.runner.arg_names, args, strict=False), *given.items()):
            _collect(name, value, found)
        return found

    def _asked(
        self, changes: Mapping[str, Any], config: Any
    ) -> tuple[LaunchRequest, list[Any], Any, dict[str, Any]]:
        """Return the request, and the arguments, the grid and the keywords of a launch like it.

        Raises:
            UsageError: how the script launches it is not known.
        """
        request = self.request
        if request is None:
            raise UsageError(f"{self.name}: how the script launches it is not known")
        copies = _Copies(None)
        args = _moved(request.args, copies)
        chosen = request.config if config is None else config.all_kwargs()
        given = {name: _moved_value(value, copies) for name, value in request.kwargs.items()}
        given |= {**chosen, **changes}
        for place, name in enumerate(request.runner.arg_names[: len(args)]):
            if name in changes:
                args[place] = given.pop(name)
        grid = request.grid
        if not callable(grid) and changes:
            grid = scaled_grid(self, changes)  # of numbers, which a script worked out
        if config is not None and config.pre_hook is not None:
            config.pre_hook({**dict(zip(request.runner.arg_names, args, strict=False)), **given})
        return request, args, grid, given

    def tensors(self, values: tuple[Any, ...]) -> dict[str, Tensor]:
        """Return the tensors of values that `fresh` gave, by the names of parameters."""
        found: dict[str, Tensor] = {}
        for name, value in zip(self.src.fn.arg_names, values, strict=True):
            _collect(name, value, found)
        return found


class LaunchKeeper:
    """Keeps the first launch of each kernel, as a `LaunchDebugger` that stops nowhere.

    Args:
        kernel: name or pattern of those that are kept; None for all.
        most_bytes: the most bytes of inputs that are kept.
        each: whether every launch counts, not only the first of its kind.

    Attributes:
        kept: in the order of the script.
        names: the names of all kernels that were launched.
        passed_over: kernels whose inputs were too large to keep.
    """

    def __init__(self, kernel: str | None, most_bytes: int, each: bool = False) -> None:
        self.kept: list[KeptLaunch] = []
        self.names: dict[str, None] = {}
        self.passed_over: dict[str, None] = {}
        self._kernel = kernel
        self._left = most_bytes
        self._each = each
        self._seen: set[object] = set()
        self._launches = 0

    def launch(
        self,
        kernel: object,
        grid: Grid,
        values: tuple[Any, ...],
        record: LaunchRecord | None,
    ) -> bool:
        """Keep a launch that is about to run; return False, as it is not run here."""
        from tkdebug.runtime.launch.interpreted_kernel import InterpretedKernel

        assert isinstance(kernel, InterpretedKernel)
        self._launches += 1
        self.names[kernel.name] = None
        if self._kernel is not None and not fnmatchcase(kernel.name, self._kernel):
            return False
        key = (kernel.src.hash, alignment_key(kernel.src.fn.params, values))
        if key in self._seen and not self._each:
            return False
        self._seen.add(key)
        size_bytes = _size_bytes(values)
        if size_bytes > self._left:
            self.passed_over[kernel.name] = None
            return False
        self._left -= size_bytes
        copies = _Copies(None)
        own = tuple(_moved(values, copies))
        asked = REQUEST.get()
        if asked is not None:
            kwargs = {name: _moved_value(value, copies) for name, value in asked.kwargs.items()}
            asked = replace(asked, args=tuple(_moved(asked.args, copies)), kwargs=kwargs)
        self.kept.append(KeptLaunch(kernel, grid, self._launches, own, asked))
        return False


class _Catcher:
    """Takes a launch in place of running it."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.launch_made: KeptLaunch | None = None

    def launch(
        self, kernel: object, grid: Grid, values: tuple[Any, ...], record: LaunchRecord | None
    ) -> bool:
        """Keep the launch; return True, so that nothing runs."""
        from tkdebug.runtime.launch.interpreted_kernel import InterpretedKernel

        assert isinstance(kernel, InterpretedKernel)
        self.launch_made = KeptLaunch(kernel, grid, self._number, values)
        return True


class _Copies:
    """Copies of allocations, one for each.

    Args:
        fill: alters each.
    """

    def __init__(self, fill: Fill | None) -> None:
        self._fill = fill
        self._made: dict[int, Tensor] = {}

    def of(self, tensor: Tensor) -> Tensor:
        """Return the tensor's place in the copy of its allocation, made at the first request."""
        with torch._C.DisableTorchFunction(), torch.no_grad():  # noqa: SLF001
            tensor = host_view(tensor)
            storage = tensor.untyped_storage()
            made = self._made.get(storage.data_ptr())
            if made is None:
                whole = torch.empty(0, dtype=torch.uint8, device=storage.device)
                made = whole.set_(storage, 0, (storage.nbytes(),), (1,)).clone()
                if self._fill is not None:
                    self._fill(made)
                self._made[storage.data_ptr()] = made
            out = torch.empty(0, dtype=tensor.dtype, device=storage.device)
            own = made.untyped_storage()
            return out.set_(own, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())


def _moved(values: tuple[Any, ...], copies: _Copies) -> list[Any]:
    return [_moved_value(value, copies) for value in values]


def _moved_value(value: Any, copies: _Copies) -> Any:
    if isinstance(value, Tensor):
        return copies.of(value)
    if isinstance(value, tuple):
        moved = _moved(value, copies)
        return value.__class__(*moved) if hasattr(value, "_fields") else tuple(moved)
    if isinstance(getattr(value, "base", None), Tensor):
        described = copy.copy(value)
        described.base = copies.of(value.base)
        return described
    return value


def _collect(name: str, value: Any, found: dict[str, Tensor]) -> None:
    tensor = getattr(value, "base", value)
    if isinstance(value, Tensor):
        found[name] = value
    elif isinstance(value, tuple):
        for place, item in enumerate(value):
            _collect(f"{name}[{place}]", item, found)
    elif isinstance(tensor, Tensor):
        found[name] = tensor


def _size_bytes(values: tuple[Any, ...]) -> int:
    found: dict[str, Tensor] = {}
    _collect("", values, found)
    sizes: Mapping[int, int] = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in found.values()
    }
    return sum(sizes.values())
