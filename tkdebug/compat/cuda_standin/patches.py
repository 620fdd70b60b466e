# ruff: noqa: SLF001 (torch offers what a stand-in must change only under private names)
"""Attributes of torch that the stand-in replaces, and their exact return.

Putting them back leaves the very torch that there was.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import nullcontext
from types import FunctionType
from typing import Any

import torch
import torch.overrides
import torch.utils._device
import torch.utils.checkpoint
import torch.utils.dlpack
from torch import Tensor

from tkdebug.compat.cuda_standin import (
    collectives,
    operator_libraries,
    placement,
    profilers,
    streams,
)
from tkdebug.compat.cuda_standin.compiling import compile_for_stand_in
from tkdebug.compat.cuda_standin.cuda_module import TORCH_ACCELERATOR, TORCH_CUDA
from tkdebug.compat.cuda_standin.default_generator import GENERATOR
from tkdebug.compat.cuda_standin.function_mode import CudaStandIn, leave
from tkdebug.compat.replacements import Replacements

_overrides: Any = torch.overrides
# On the node of a custom autograd function: which of its outputs count as CUDA tensors.
_ON_CUDA = "_tkdebug_on_cuda"
# On the definition of a custom operator: its kernels by device.
_KERNELS = "_tkdebug_kernels"
_CUDA_VERSION = "12.8"


def _another(value: Any) -> Any:
    """A function that does the same: torch's compiler has a table by function, and no doubles."""
    if not isinstance(value, FunctionType):
        return value

    @functools.wraps(value)
    def same(*arguments: Any, **keywords: Any) -> Any:
        return value(*arguments, **keywords)

    return same


def _current_raw_stream(device: int) -> int:
    return int(streams.current_stream(device).cuda_stream)


def _empty_strided(size: Any, stride: Any, dtype: torch.dtype) -> Tensor:
    with torch._C.DisableTorchFunction():
        return placement.place(torch.empty_strided(size, stride, dtype=dtype))


def _from_dlpack(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(original)
    def take(ext_tensor: Any, **keywords: Any) -> Tensor:
        taken = original(ext_tensor, **keywords)
        # The same memory, in a storage of its own.
        on_cuda = isinstance(ext_tensor, Tensor) and placement.on_cuda(ext_tensor)
        return placement.place(taken) if on_cuda else taken

    return take


def _grouped_by_place(original: Callable[..., Any]) -> Callable[..., Any]:
    # Optimizers and gradient clipping then move things to the device that a group names.
    def group(tensorlists: Any, with_indices: bool = False) -> Any:
        groups = original(tensorlists, with_indices)
        return {
            (placement.CUDA if placement.split_inputs(lists[:1], []) else device, dtype): (
                lists,
                indices,
            )
            for (device, dtype), (lists, indices) in groups.items()
        }

    return group


def _scatter(tensor: Tensor, devices: Any, *arguments: Any) -> tuple[Tensor, ...]:
    # For DataParallel, over the one device.
    return (tensor.cuda(),)


def apply(patches: Replacements, mode: CudaStandIn) -> None:
    """Put every replacement in place."""
    _patch_modules(patches)
    _patch_libraries(patches)
    _patch_default_device(patches)
    _patch_autocast(patches)
    _patch_autograd(patches, mode)
    _patch_custom_ops(patches, mode)
    _patch_threads(patches, mode)
    profilers.apply(patches)
    collectives.apply(patches)
    compile_for_stand_in(patches, mode)
    _register_loading(patches)


def _patch_modules(patches: Replacements) -> None:
    for name, value in TORCH_CUDA.items():
        if hasattr(torch.cuda, name):
            patches.set(torch.cuda, name, value)
    patches.set(torch.cuda, "default_generators", (GENERATOR,))
    for submodule in (torch.cuda.memory, torch.cuda.random, torch.cuda.streams, torch.cuda.graphs):
        for name, value in TORCH_CUDA.items():
            if name in vars(submodule) and name != "device":
                patches.set(submodule, name, value)
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        for name, value in TORCH_ACCELERATOR.items():
            if hasattr(accelerator, name):
                patches.set(accelerator, name, _another(value))
    # Code that torch.compile generated, and was saved, allocates and launches by them.
    patches.set(torch._C, "_cuda_getCurrentRawStream", _current_raw_stream)
    patches.set(torch._C._dynamo.guards, "_empty_strided_cuda", _empty_strided)
    patches.set(torch, "Generator", streams.Generator)
    patches.set(torch, "Stream", streams.Stream)
    patches.set(torch, "Event", streams.Event)
    patches.set(torch.version, "cuda", _CUDA_VERSION)
    # Its argument is refused for not being torch's own stream type before a mode would see it.
    patches.set(Tensor, "record_stream", lambda tensor, stream: None)


def _patch_libraries(patches: Replacements) -> None:
    for name in ("preferred_linalg_library", "preferred_blas_library"):
        chosen = vars(torch.backends.cuda).get(name)
        if chosen is not None:
            # The CPU's libraries are the only ones.
            patches.set(torch.backends.cuda, name, lambda backend=None, chosen=chosen: chosen())
    # Of a build with CUDA it takes the weights of recurrent layers.
    patches.set(torch.backends.cudnn, "is_acceptable", lambda tensor: False)
    patches.set(torch._C, "_scatter", _scatter)
    name = "_group_tensors_by_device_and_dtype"
    patches.set(torch._C, name, _grouped_by_place(getattr(torch._C, name)))
    from_dlpack = _from_dlpack(torch.utils.dlpack.from_dlpack)
    for owner in (torch, torch.utils.dlpack):
        patches.set(owner, "from_dlpack", from_dlpack)


def _patch_default_device(patches: Replacements) -> None:
    # torch keeps the default device as a mode below all others, where ours cannot see its doing.
    context = torch.utils._device.DeviceContext
    original: Any = context.__torch_function__
    constructors = torch.utils._device._device_constructors

    def create(
        self: Any, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        keywords = dict(kwargs or {})
        wants_default = func in constructors() and keywords.get("device") is None
        if not (wants_default and placement.is_cuda_device(self.device)):
            return original(self, func, types, args, kwargs)
        keywords["device"] = placement.CPU
        keywords.pop("pin_memory", None)
        result = func(*args, **keywords)
        return placement.place(result) if isinstance(result, Tensor) else result

    patches.set(context, "__torch_function__", create)
    module_of, set_type = torch.get_device_module, torch.set_default_tensor_type

    @functools.wraps(module_of)
    def get_device_module(device: Any = None) -> Any:
        return torch.cuda if device is None else module_of(device)

    @functools.wraps(set_type)
    def set_default_tensor_type(t: Any, /) -> None:
        name = t if isinstance(t, str) else f"{t.__module__}.{t.__name__}"
        on_cuda = name.startswith("torch.cuda.")
        set_type(name.replace("torch.cuda.", "torch."))
        torch.set_default_device("cuda" if on_cuda else None)

    patches.set(torch, "get_device_module", get_device_module)
    patches.set(torch, "set_default_tensor_type", set_default_tensor_type)


def _cpu_for_cuda(original: Callable[..., Any], others: int) -> Callable[..., Any]:
    """`original`, which takes a device and so many `others`, and CUDA where no device is named."""

    @functools.wraps(original)
    def ask(*arguments: Any) -> Any:
        if len(arguments) == others:
            arguments = ("cuda", *arguments)
        if arguments[0] == "cuda":
            arguments = ("cpu", *arguments[1:])
        return original(*arguments)

    return ask


def _patch_autocast(patches: Replacements) -> None:
    autocast = torch.amp.autocast_mode.autocast
    original = autocast.__init__

    @functools.wraps(original)
    def start(
        self: Any,
        device_type: str,
        dtype: torch.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.get_autocast_dtype("cuda")
        original(self, device_type, dtype, enabled, cache_enabled)

    patches.set(autocast, "__init__", start)
    # A call without a device means CUDA: `is_autocast_enabled()`, `set_autocast_enabled(True)`.
    for name, others in (("is_autocast_enabled", 0), ("set_autocast_enabled", 1)):
        patches.set(torch, name, _cpu_for_cuda(getattr(torch, name), others))
    native = torch.get_autocast_dtype

    def dtype_in_force(device_type: str) -> torch.dtype:
        # Inside a region the CPU's setting is the truth, outside it CUDA's default (fp16) is.
        inside = device_type == "cuda" and torch.is_autocast_enabled("cpu")
        return native("cpu" if inside else device_type)

    patches.set(torch, "get_autocast_dtype", dtype_in_force)


def _patch_autograd(patches: Replacements, mode: CudaStandIn) -> None:
    run = torch.autograd.graph._engine_run_backward

    @functools.wraps(run)
    def run_backward(*arguments: Any, **keywords: Any) -> Any:
        # `x.backward()` arrives here from inside the mode's handler: hooks and backward functions
        # are the script's own code and must hear the stand-in's answers. While torch's compiler
        # traces, fake tensors give them.
        is_traced = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
        with (
            nullcontext() if is_traced else _Entered(mode),
            operator_libraries.found(in_backward=True),
        ):
            return run(*arguments, **keywords)

    for owner in (torch.autograd, torch.autograd.graph):
        if "_engine_run_backward" in vars(owner):
            patches.set(owner, "_engine_run_backward", run_backward)
    _patch_saved_tensors(patches, mode)
    function = torch.autograd.Function
    # From torch 2.15 on it is no function of Python's.
    apply_forward = vars(function)["apply"]

    def apply(cls: Any, *arguments: Any, **keywords: Any) -> Any:
        outputs = apply_forward.__get__(None, cls)(*arguments, **keywords)
        results = outputs if isinstance(outputs, tuple) else (outputs,)
        on_cuda = tuple(isinstance(r, Tensor) and placement.on_cuda(r) for r in results)
        if any(on_cuda):
            for result in results:
                node = result.grad_fn if isinstance(result, Tensor) else None
                if node is not None and hasattr(node, "_forward_cls"):
                    setattr(node, _ON_CUDA, on_cuda)
        return outputs

    patches.set(function, "apply", classmethod(apply))
    backward = torch.autograd.function.BackwardCFunction
    for name in ("apply", "apply_boxed"):
        if name in vars(backward):
            patches.set(backward, name, _placing_gradients(vars(backward)[name]))


def _patch_saved_tensors(patches: Replacements, mode: CudaStandIn) -> None:
    # Autograd calls pack hooks in the midst of an operation, where the mode is off.
    hooks = torch.autograd.graph.saved_tensors_hooks
    start = hooks.__init__

    @functools.wraps(start)
    def start_hooks(
        self: Any, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]
    ) -> None:
        start(self, _under(mode, pack_hook), _under(mode, unpack_hook))

    patches.set(hooks, "__init__", start_hooks)
    # A result is not marked yet when it is packed; its copy when recomputed is.
    checks = torch.utils.checkpoint._allowed_determinism_checks_to_fns

    def describe(tensor: Tensor) -> object:
        with torch._C.DisableTorchFunction():
            return checks["default"](tensor)

    patches.set(
        torch.utils.checkpoint,
        "_allowed_determinism_checks_to_fns",
        {**checks, "default": describe},
    )


def _patch_custom_ops(patches: Replacements, mode: CudaStandIn) -> None:
    # The dispatcher calls an operator's own code in the midst of a call, where the mode is off; and
    # chooses by what tensors are, which is the CPU's.
    definition = torch._library.custom_ops.CustomOpDef
    register = definition.register_kernel

    @functools.wraps(register)
    def register_kernel(self: Any, device_types: Any, fn: Any = None, /) -> Any:
        named = [device_types] if isinstance(device_types, str) else list(device_types or ())

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            kernel = _under(mode, function)
            if named:
                kernels = vars(self).setdefault(_KERNELS, {})
                kernels.update(dict.fromkeys(named, kernel))
                places = {"cpu" if name == "cuda" else name for name in named}
                register(self, sorted(places), _chosen_kernel(self, kernels))
            else:
                register(self, None, kernel)
            return function

        return add if fn is None else add(fn)

    patches.set(definition, "register_kernel", register_kernel)
    library = torch.library.Library
    under_mode = functools.partial(_under, mode)
    patches.set(library, "impl", operator_libraries.noting_kernels(library.impl, under_mode))
    patches.set(library, "_destroy", operator_libraries.forgetting_kernels(library._destroy))


def _chosen_kernel(definition: Any, kernels: dict[str, Callable[..., Any]]) -> Callable[..., Any]:
    def run(*values: Any, **keywords: Any) -> Any:
        on_cuda = placement.split_inputs([*values, *keywords.values()], [])
        place = "cuda" if on_cuda else "cpu"
        if place not in kernels:
            known = ", ".join(kernels)
            raise NotImplementedError(f"{definition}: got tensors on {place}, expected {known}")
        return kernels[place](*values, **keywords)

    return run


def _under(mode: CudaStandIn, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*values: Any, **keywords: Any) -> Any:
        with _Entered(mode):
            return function(*values, **keywords)

    return call


def _placing_gradients(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def apply_backward(self: Any, *arguments: Any) -> Any:
        boxed = len(arguments) == 1 and isinstance(arguments[0], list)
        gradients = arguments[0] if boxed else arguments
        on_cuda = getattr(self, _ON_CUDA, ())
        for gradient, placed in zip(gradients, on_cuda, strict=False):
            if placed and isinstance(gradient, Tensor):
                placement.place(gradient)
        return original(self, *arguments)

    return apply_backward


class _Entered:
    """The mode on this thread's stack, unless it is there already."""

    def __init__(self, mode: CudaStandIn) -> None:
        self._mode = mode
        self._pushed = False

    def __enter__(self) -> None:
        stack: list[object] = _overrides._get_current_function_mode_stack()
        if self._mode.active and not any(m is self._mode for m in stack):
            self._mode.enter()
            self._pushed = True

    def __exit__(self, *error: object) -> None:
        if self._pushed:
            leave(self._mode)


def _patch_threads(patches: Replacements, mode: CudaStandIn) -> None:
    bootstrap = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    @functools.wraps(bootstrap)
    def start_thread(self: threading.Thread) -> None:
        with _Entered(mode):
            bootstrap(self)

    patches.set(threading.Thread, "_bootstrap_inner", start_thread)


def _register_loading(patches: Replacements) -> None:
    """Let `torch.save` and `torch.load` keep which tensors are CUDA's (a storage's location)."""

    def tag(storage: Any) -> str | None:
        raw = getattr(storage, "_untyped_storage", storage)
        return "cuda:0" if placement.storage_on_cuda(raw) else None

    def restore(storage: Any, location: str) -> Any:
        if not location.startswith("cuda"):
            return None
        placement.place_storage(getattr(storage, "_untyped_storage", storage))
        return storage

    registry = torch.serialization._package_registry
    # Before the CPU's own entry (10), which would claim every storage.
    patches.set(torch.serialization, "_package_registry", [(5, tag, restore), *registry])
