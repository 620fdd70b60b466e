"""Rare steps of a native launch, which its generated function calls where it cannot go on alone.

`launch_writer` writes that function. Rare cases are here: a first launch, an unusual argument,
another mode.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from tkdebug.compiler.tensor import unwrap
from tkdebug.errors import LaunchError
from tkdebug.runtime.arguments.binder import spec_of
from tkdebug.runtime.arguments.specialize import (
    accepts_declared,
    aligned,
    constant_key,
    is_tensor_like,
    launch_key,
)
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor
from tkdebug.runtime.device.modes import current_mode
from tkdebug.runtime.device.platform import platform_in_force
from tkdebug.runtime.launch.launch_writer import MISSING, PREFIX, WARMUP, write_launch
from tkdebug.runtime.launch.requests import grid_dimensions

if TYPE_CHECKING:
    from tkdebug.runtime.checked.checked_kernel import CheckedKernel
    from tkdebug.runtime.jit.function import JITFunction
    from tkdebug.runtime.launch.compiled_kernel import CompiledKernel

Key = tuple[Hashable, ...]
DOUBLED = f"{PREFIX}doubled"


class NativePath:
    """The slow path of one jit function's generated launch function, which calls it.

    Attributes:
        launch: the generated function: `launch(grid, *arguments, **options)`.
    """

    def __init__(self, fn: JITFunction, first_values: Sequence[Any] = ()) -> None:
        self._fn = fn
        self.launch = write_launch(self, fn, fn.kernels, first_values)

    def is_native(self) -> bool:
        """Whether a launch made here and now is native."""
        return current_mode(self._fn.__name__) == "native"

    def unusual(
        self, position: int, value: Any, device: int, grid: Any
    ) -> tuple[Hashable, Hashable, Any]:
        """Key, alignment and passed value of an argument that the text has no branch for."""
        if value is MISSING:
            # No compiled kernel has such a key, and `compile` explains.
            return MISSING, None, None
        parameter = self._fn.params[position]
        declared = parameter.declared_type
        if declared is not None and accepts_declared(declared, value):
            kind: Hashable = "declared"
        else:
            try:
                kind = launch_key(value, not parameter.do_not_specialize)
            except LaunchError:
                # Raises too, and names the argument.
                spec_of(self._fn.__name__, parameter, value)
                raise
        alignment = parameter.notes_alignment and aligned(value)
        if is_tensor_like(value) and not isinstance(value, TensorDescriptor):
            return kind, alignment, self.address(position, value, device, grid)
        if grid is not WARMUP:
            self._check_inside(position, value, device)
        return kind, alignment, value

    def address(self, position: int, value: Any, device: int, grid: Any) -> int:
        """Address of a tensor that is not known to be on `device`.

        Raises:
            PointerError: kernels there cannot access it.
            NoDeviceError: there is no GPU.
        """
        if grid is WARMUP:
            return int(value.data_ptr())
        platform = platform_in_force()
        platform.require()
        name = self._fn.params[position].name
        return platform.accessible_address(self._fn.__name__, name, value, device)

    def _check_inside(self, position: int, value: Any, device: int) -> None:
        """Check the tensors of a tuple or descriptor."""
        if isinstance(value, TensorDescriptor):
            self.address(position, value.base, device, None)
        elif isinstance(value, tuple):
            for item in value:
                self._check_inside(position, item, device)
        elif is_tensor_like(value):
            self.address(position, value, device, None)

    def compile(
        self,
        key: Key,
        device: int,
        values: tuple[Any, ...],
        surplus: tuple[Any, ...],
        options: dict[str, Any],
        grid: Any,
    ) -> CompiledKernel | None:
        """The kernel for a key that has none yet; None when a cache hook takes the compile."""
        if surplus or any(value is MISSING for value in values):
            # Raises, as the arguments do not fit.
            self._fn.explain(*self._as_given(values, surplus, options))
        try:
            hash(key)
        except TypeError:
            # An option that has no hash, such as a dict of libraries.
            key = (*key[:2], constant_key(options), *key[3:])
        return self._fn.compile_native(key, device, values, _unfolded(options), grid is WARMUP)

    def renew(
        self,
        kernel: CompiledKernel,
        key: Key,
        device: int,
        values: tuple[Any, ...],
        options: dict[str, Any],
        grid: Any,
    ) -> CompiledKernel | None:
        """Return the kernel to launch after a global was rebound; None if a cache hook takes it."""
        if not self._fn.forget_if_stale(kernel, key):
            return kernel
        return self._fn.compile_native(key, device, values, _unfolded(options), grid is WARMUP)

    def launch_seen(
        self,
        kernel: CheckedKernel,
        grid: Any,
        stream: int,
        values: tuple[Any, ...],
        passed: tuple[Any, ...],
    ) -> CompiledKernel:
        """Launch a kernel some of whose launches are checked."""
        if callable(grid):
            named = zip(self._fn.arg_names, map(unwrap, values), strict=True)
            grid = grid(dict(named))
        dimensions = self.dimensions(grid)
        if 0 not in dimensions:
            kernel.launch_seen(dimensions, stream, values, passed)
        return kernel

    def elsewhere(
        self,
        grid: Any,
        values: tuple[Any, ...],
        surplus: tuple[Any, ...],
        options: dict[str, Any],
    ) -> Any:
        """Launch in another mode than native."""
        args, kwargs = self._as_given(values, surplus, options)
        return self._fn.run_in_mode(args, grid, False, kwargs)

    def _as_given(
        self, values: tuple[Any, ...], surplus: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        options = _unfolded(options)
        if surplus:
            return (*values, *surplus), options
        named = {
            name: value
            for name, value in zip(self._fn.arg_names, values, strict=True)
            if value is not MISSING
        }
        return (), {**options, **named}

    def dimensions(self, grid: Any) -> tuple[int, int, int]:
        """The grid in full, or an error that says what is wrong with it."""
        return grid_dimensions(self._fn.__name__, grid)


def _unfolded(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options, with entries of `DOUBLED`, which are parameters too, put in by name."""
    if DOUBLED not in options:
        return options
    plain = {name: value for name, value in options.items() if name != DOUBLED}
    return {**plain, **dict(options[DOUBLED])}
