"""What the stand-in answers for the functions that ask about, or change, a tensor's device.

Each rule has the signature of `calls.Rule` and runs while the function mode is off: tensors are
plain CPU tensors here, and `placement` alone knows which of them count as CUDA.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tkdebug.compat.cuda_standin import placement
from tkdebug.compat.cuda_standin.calls import Arguments, Function, Rule, call
from tkdebug.runtime.launch.graph_capture import refuse_while_capturing

_NO_NUMPY = (
    "can't convert cuda:0 device type tensor to numpy. "
    "Use Tensor.cpu() to copy the tensor to host memory first."
)


def tensor_rules() -> Iterator[tuple[object, Rule]]:
    """Every function with a rule of its own."""
    yield _getter("device"), _device
    yield _getter("is_cuda"), _is_cuda
    yield _getter("is_cpu"), _is_cpu
    yield Tensor.get_device, _get_device
    yield Tensor.to, _to
    yield torch._C._nn._parse_to, _parse_to  # noqa: SLF001 (what `Module.to` calls)
    yield Tensor.cuda, _cuda
    yield Tensor.cpu, _cpu
    yield Tensor.type, _type
    yield Tensor.type_as, _type_as
    yield Tensor.copy_, _copy
    yield Tensor.tolist, _tolist
    yield Tensor.numpy, _numpy
    yield Tensor.__array__, _numpy
    yield Tensor.__repr__, _repr
    yield Tensor.__format__, _format
    yield Tensor.pin_memory, _pin_memory
    yield Tensor.is_pinned, _is_pinned
    yield Tensor.register_hook, _register_hook
    yield Tensor.backward, _straight
    yield torch.autograd.grad, _grad
    yield torch.tensor, _tensor
    yield torch.as_tensor, _as_tensor
    yield torch.asarray, _as_tensor
    yield torch.histc, _histc
    yield Tensor.histc, _histc
    if hasattr(torch, "get_device"):
        yield torch.get_device, _get_device


def _getter(name: str) -> object:
    """What torch hands a mode when the attribute `name` is read."""
    return getattr(Tensor, name).__get__


def _straight(func: Function, args: Arguments, kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs)


def _device(func: Function, args: Arguments, kwargs: dict[str, Any]) -> Any:
    return placement.CUDA if placement.on_cuda(args[0]) else func(*args)


def _is_cuda(func: Function, args: Arguments, kwargs: dict[str, Any]) -> Any:
    return placement.on_cuda(args[0]) or func(*args)


def _is_cpu(func: Function, args: Arguments, kwargs: dict[str, Any]) -> Any:
    return func(*args) and not placement.on_cuda(args[0])


def _get_device(func: Function, args: Arguments, kwargs: dict[str, Any]) -> Any:
    return 0 if placement.on_cuda(args[0]) else func(*args, **kwargs)


def _to(func: Function, args: Arguments, kwargs: dict[str, Any]) -> Any:
    tensor, *rest = args
    wanted = kwargs.get("device", kwargs.get("other"))
    if rest and not isinstance(rest[0], torch.dtype):
        wanted = rest[0]
    if wanted is None:
        on_cuda = placement.on_cuda(tensor)
    elif isinstance(wanted, Tensor):
        on_cuda = placement.on_cuda(wanted)
    else:
        on_cuda = placement.is_cuda_device(wanted)
        if on_cuda and rest and rest[0] is wanted:
            rest[0] = placement.CPU
        elif on_cuda:
            kwargs["device"] = placement.CPU
    result = func(tensor, *rest, **kwargs)
    is_asynchronous = kwargs.get("non_blocking") or any(value is True for value in rest)
    return _moved(tensor, result, on_cuda, bool(is_asynchronous))


def _parse_to(func: Function, args: Arguments, kwargs: dict[str, Any]) -> Any:
    """What `Module.to` was asked for: the device stays the one that its parameters go to."""
    device, *rest = func(*args, **kwargs)
    if any(isinstance(v, Tensor) and placement.on_cuda(v) for v in (*args, *kwargs.values())):
        device = placement.CUDA
    return (device, *rest)


def _histc(func: Function, args: Arguments, kwargs: dict[str, Any]) -> Any:
    """A histogram: CUDA counts integers, too, which the CPU's refuses."""
    name = "input" if "input" in kwargs else None
    values = kwargs["input"] if name else args[0]
    if values.is_floating_point() or values.dtype == torch.bool:
        return call(func, args, kwargs)
    wide = values.double()
    if name:
        kwargs["input"] = wide
    else:
        args = (wide, *args[1:])
    out = kwargs.pop("out", None)
    counts = func(*args, **kwargs).to(values.dtype)
    if out is not None:
        return out.resize_(counts.shape).copy_(counts)
    return placement.place(counts) if placement.on_cuda(values) else counts


def _moved(tensor: Tensor, result: Tensor, on_cuda: bool, is_asynchronous: bool = False) -> Tensor:
    """`result`, made from `tensor`, in memory of its own when it changes device."""
    if on_cuda != placement.on_cuda(tensor):
        # What an asynchronous copy to the host makes is pinned.
        if not (placement.is_pinned(tensor) if on_cuda else is_asynchronous or result.is_meta):
            _refuse_copy()
        if placement.shares_memory(result, tensor):
            result = result.clone()
    return placement.place(result) if on_cuda else result


def _refuse_copy() -> None:
    """Refuse, while a graph is captured, a copy that CUDA waits for."""
    refuse_while_capturing(
        "a copy between the GPU and host memory that is not pinned",
        "copy before the capture or after the replay, or use tensor.pin_memory() and "
        "non_blocking=True",
    )


def _copy(func: Function, args: Arguments, kwargs: dict[str, Any]) -> Any:
    target, source = args[0], args[1] if len(args) > 1 else kwargs.get("src", kwargs.get("other"))
    if isinstance(source, Tensor):
        on_cuda = placement.on_cuda(target)
        if on_cuda != placement.on_cuda(source):
            host = source if on_cuda else target
            if not (placement.is_pinned(host) or host.is_meta):
                _refuse_copy()
    return call(func, args, kwargs)


def _tolist(func: Function, args: Arguments, kwargs: dict[str, Any]) -> Any:
    if placement.on_cuda(args[0]):
        _refuse_reading()
    return func(*args, **kwargs)


def _refuse_reading() -> None:
    refuse_while_capturing(
        "the values of a CUDA tensor are read (.tolist(), print…)",
        "read them after the replay",
    )


def _cuda(func: Function, args: Arguments, kwargs: dict[str, Any]) -> Any:
    device = args[1] if len(args) > 1 else kwargs.get("device")
    if device is not None and not placement.is_cuda_device(device):
        raise ValueError(f"Invalid device, must be cuda device: got {device}")
    tensor: Tensor = args[0]
    if placement.on_cuda(tensor):
        return tensor
    if tensor.is_meta:
        return func(*args, **kwargs)
    if not placement.is_pinned(tensor):
        _refuse_copy()
    memory_format = kwargs.get("memory_format", torch.preserve_format)
    return placement.place(tensor.clone(memory_format=memory_format))


def _cpu(func: Function, args: Arguments, kwargs: dict[str, Any]) -> Any:
    tensor: Tensor = args[0]
    if not placement.on_cuda(tensor):
        return func(*args, **kwargs)
    _refuse_copy()
    return tensor.clone(**kwargs)


def _type(func: Function, args: Arguments, kwargs: dict[str, Any]) -> Any:
    tensor: Tensor = args[0]
    wanted = args[1] if len(args) > 1 else kwargs.get("dtype")
    if wanted is None:
        name: str = func(tensor)
        return name.replace("torch.", "torch.cuda.", 1) if placement.on_cuda(tensor) else name
    if isinstance(wanted, torch.dtype):
        return _moved(tensor, func(tensor, wanted), placement.on_cuda(tensor))
    name = wanted if isinstance(wanted, str) else f"{wanted.__module__}.{wanted.__qualname__}"
    result = func(tensor, name.replace("torch.cuda.", "torch.", 1))
    return _moved(tensor, result, name.startswith("torch.cuda."))


def _type_as(func: Function, args: Arguments, kwargs: dict[str, Any]) -> Any:
    return _moved(args[0], func(*args, **kwargs), placement.on_cuda(args[1]))


def _numpy(func: Function, args: Arguments, kwargs: dict[str, Any]) -> Any:
    if placement.on_cuda(args[0]) and not kwargs.get("force"):
        raise TypeError(_NO_NUMPY)
    return func(*args, **kwargs)


def _repr(func: Function, args: Arguments, kwargs: dict[str, Any]) -> str:
    if not placement.on_cuda(args[0]):
        return str(func(*args, **kwargs))
    _refuse_reading()
    text: str = func(*args, **kwargs)
    # torch names the device right after the values: after the last bracket or, for a scalar, first.
    bracket = text.rfind("]")
    if bracket >= 0:
        return f"{text[: bracket + 1]}, device='cuda:0'{text[bracket + 1 :]}"
    return re.sub(r"(tensor\([^,)]*)", r"\1, device='cuda:0'", text, count=1)


def _format(func: Function, args: Arguments, kwargs: dict[str, Any]) -> str:
    tensor: Tensor = args[0]
    if tensor.dim() == 0 or not placement.on_cuda(tensor):
        return str(func(*args, **kwargs))
    return format(_repr(Tensor.__repr__, (tensor,), {}), *args[1:])


def _pin_memory(func: Function, args: Arguments, kwargs: dict[str, Any]) -> Any:
    tensor: Tensor = args[0]
    if placement.on_cuda(tensor):
        raise RuntimeError(
            f"cannot pin '{_type(Tensor.type, (tensor,), {})}' only dense CPU tensors can be pinned"
        )
    return tensor if placement.is_pinned(tensor) else placement.pin(tensor.clone())


def _is_pinned(func: Function, args: Arguments, kwargs: dict[str, Any]) -> bool:
    return placement.is_pinned(args[0])


def _register_hook(func: Function, args: Arguments, kwargs: dict[str, Any]) -> Any:
    tensor, hook = args[0], args[1] if len(args) > 1 else kwargs["hook"]
    if not placement.on_cuda(tensor):
        return func(tensor, hook)
    # The engine makes gradients where the mode cannot see them.
    return func(tensor, lambda gradient: hook(placement.place(gradient)))


def _grad(func: Function, args: Arguments, kwargs: dict[str, Any]) -> Any:
    inputs = args[1] if len(args) > 1 else kwargs["inputs"]
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    gradients = func(*args, **kwargs)
    for of, gradient in zip(inputs, gradients, strict=True):
        if gradient is not None and isinstance(of, Tensor) and placement.on_cuda(of):
            placement.place(gradient)
    return gradients


def _tensor(func: Function, args: Arguments, kwargs: dict[str, Any]) -> Any:
    asked = kwargs.get("device") is not None or kwargs.get("pin_memory")
    if asked or (args and isinstance(args[0], Tensor)):
        data = args[0] if args else kwargs.get("data")
        if asked and placement.is_cuda_device(kwargs.get("device")) and not _is_there(data):
            _refuse_copy()
        return call(func, args, kwargs)
    # Scalars out of CUDA tensors in a list make a tensor on the default device, as in torch.
    return func(*args, **kwargs)


def _as_tensor(func: Function, args: Arguments, kwargs: dict[str, Any]) -> Any:
    data = args[0] if args else kwargs.get("data", kwargs.get("obj"))
    device = kwargs.get("device")
    if len(args) > 2:
        device = args[2]
        args = args[:2]
    if device is None:
        return call(func, args, kwargs) if isinstance(data, Tensor) else func(*args, **kwargs)
    on_cuda = placement.is_cuda_device(device)
    kwargs["device"] = placement.CPU if on_cuda else device
    result = func(*args, **kwargs)
    if isinstance(data, Tensor):
        return _moved(data, result, on_cuda)
    if not on_cuda:
        return result
    _refuse_copy()
    # Memory of a numpy array must not turn into CUDA memory.
    return placement.place(result.clone())


def _is_there(data: object) -> bool:
    return isinstance(data, Tensor) and placement.on_cuda(data)
