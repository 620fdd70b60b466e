"""The native way from `kernel[grid](…)` to the driver: one generated function per jit function.

`inspect.Signature.bind` alone costs more than a native launch may, so binding is the generated
function's own call; its body works out the key of the arguments (types, constants, alignment),
looks the compiled kernel up, and hands the arguments over. Each step that a launch does not need
is left out of the text. Whatever is rare (a first launch, an unusual argument, another mode) goes
through a call to `NativePath`.

Invariant: the key differs wherever `specialize.argument_spec` and `alignment.alignment_key`
tell apart, as equal keys share a kernel.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from time import time_ns
from typing import TYPE_CHECKING, Any

from tkdebug.compiler.tensor import constexpr, unwrap
from tkdebug.errors import LaunchError
from tkdebug.events import next_launch_id
from tkdebug.hook_chain import HOOKS
from tkdebug.knobs import KNOBS
from tkdebug.runtime.arguments.alignment import aligned, aligned_descriptor
from tkdebug.runtime.arguments.binder import spec_of
from tkdebug.runtime.arguments.specialize import (
    accepts_declared,
    constant_key,
    is_tensor_like,
    launch_key,
)
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor
from tkdebug.runtime.device.modes import MAIN_THREAD, OWN_MODE, current_mode
from tkdebug.runtime.device.platform import platform_in_force
from tkdebug.runtime.jit.parameters import refuse_keyword_variadic
from tkdebug.runtime.launch.grid import grid_dimensions
from tkdebug.runtime.launch.launch_text import PREFIX, launch_text
from tkdebug.runtime.launch.launches_in_flight import IN_FLIGHT, NOWHERE, plain
from tkdebug.runtime.probes.watched_kernel import WatchedKernel

if TYPE_CHECKING:
    from tkdebug.runtime.jit.function import JITFunction
    from tkdebug.runtime.launch.compiled_kernel import CompiledKernel

Key = tuple[Hashable, ...]
DOUBLED = f"{PREFIX}doubled"


class _Marker:
    """A value that no argument can be."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


# The generated function's value for an argument that was not given.
MISSING = _Marker("<missing>")
# Stands for the grid of a launch that only compiles.
WARMUP = _Marker("<warm-up>")


class NativePath:
    """What the generated function of one jit function calls where it cannot go on alone.

    Attributes:
        launch: the generated function: `launch(grid, *arguments, **options)`.
    """

    def __init__(self, fn: JITFunction, first_values: Sequence[Any] = ()) -> None:
        self._fn = fn
        self.launch = _make_launch(self, fn, first_values)

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
        """The kernel to launch when a global it was compiled with is another object now."""
        if not self._fn.forget_if_stale(kernel, key):
            return kernel
        return self._fn.compile_native(key, device, values, _unfolded(options), grid is WARMUP)

    def launch_seen(
        self,
        kernel: WatchedKernel,
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
    """The options, with those in their places that are parameters too."""
    if DOUBLED not in options:
        return options
    plain = {name: value for name, value in options.items() if name != DOUBLED}
    return {**plain, **dict(options[DOUBLED])}


def _make_launch(
    path: NativePath, fn: JITFunction, first_values: Sequence[Any]
) -> Callable[..., Any]:
    import torch

    refuse_keyword_variadic(fn.__name__, fn.signature)
    getters = _getters()
    own: dict[str, Any] = {
        "Tensor": torch.Tensor,
        "Parameter": torch.nn.Parameter,
        "Descriptor": TensorDescriptor,
        "aligned_descriptor": aligned_descriptor,
        # Not through the class, on which the interpreter may have put a method that takes notes.
        "data_ptr": torch._C.TensorBase.data_ptr,  # noqa: SLF001
        "device": getters[0],
        "stream": getters[1],
        "Watched": WatchedKernel,
        "find": fn.kernels.get,
        "path": path,
        "unusual": path.unusual,
        "constant_key": constant_key,
        "constexpr": constexpr,
        "knobs": KNOBS,
        "hooks": HOOKS,
        "in_flight": IN_FLIGHT,
        "caller": sys._getframe,  # noqa: SLF001
        "id_of": id,
        "is_scripts": IN_FLIGHT.is_scripts,
        "place_from": IN_FLIGHT.place_from,
        "plain": plain,
        "nowhere": NOWHERE,
        "ordinal": IN_FLIGHT.ordinal,
        "keep": IN_FLIGHT.keep,
        "now": time_ns,
        "next_launch_id": next_launch_id,
        "own_mode": OWN_MODE.get,
        "main": MAIN_THREAD,
        "native_modes": _native_modes(),
        "MISSING": MISSING,
        # A kernel with *args takes whatever is given by position.
        "surplus": (),
        "WARMUP": WARMUP,
    }
    for parameter in fn.params:
        default = parameter.default if parameter.has_default else MISSING
        own[f"default_{parameter.num}"] = default
    namespace = {f"{PREFIX}{name}": value for name, value in own.items()}
    text = launch_text(fn.params, first_values)
    exec(compile(text, f"<launch of {fn.__name__}>", "exec"), namespace)
    launch: Callable[..., Any] = namespace[f"{PREFIX}launch"]
    launch.__name__ = fn.__name__
    launch.__qualname__ = fn.__qualname__
    return launch


def _native_modes() -> tuple[str, ...]:
    """The modes in which a launch is native here."""
    return ("native", "auto") if platform_in_force().obstacle() is None else ("native",)


def _getters() -> tuple[Callable[[], int], Callable[[int], int]]:
    """Functions for the current device and for a device's current stream."""
    return platform_in_force().getters()
