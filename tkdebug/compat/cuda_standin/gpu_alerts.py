"""Reports that a GPU makes, and the CPU does not, by operators.

Operators that are not deterministic there, with `torch.use_deterministic_algorithms`, operators
that wait for the GPU, with `torch.cuda.set_sync_debug_mode`, and arguments that only a GPU refuses.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

Kernel = Callable[..., Any]


def _weights_given(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    return len(args) > 1 or kwargs.get("weights") is not None


def _is_floating(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    return bool(args[0].is_floating_point())


def _takes_maxima(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    # Its argument `mode`, by the schema.
    return bool(args[8] == _MODE_MAX)


_MODE_MAX = 2
# Names by which a GPU refuses operators where `torch.use_deterministic_algorithms` is set.
NOT_DETERMINISTIC: Mapping[str, str] = {
    **{
        name: f"{name}_cuda"
        for name in (
            "avg_pool3d_backward max_pool3d_with_indices_backward adaptive_max_pool2d_backward "
            "fractional_max_pool2d_backward fractional_max_pool3d_backward "
            "replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward "
            "grid_sampler_2d_backward grid_sampler_3d_backward reflection_pad2d_backward"
        ).split()
    },
    **{
        name: f"{name}_out_cuda"
        for name in (
            "upsample_linear1d_backward upsample_bilinear2d_backward upsample_bicubic2d_backward "
            "upsample_trilinear3d_backward reflection_pad1d_backward reflection_pad3d_backward"
        ).split()
    },
    "_adaptive_avg_pool2d_backward": "adaptive_avg_pool2d_backward_cuda",
    "_adaptive_avg_pool3d_backward": "adaptive_avg_pool3d_backward_cuda",
    "nll_loss2d_forward": "nll_loss2d_forward_out_cuda_template",
    "_ctc_loss_backward": "ctc_loss_backward_gpu",
    "_embedding_bag_backward": "embedding_bag_backward_cuda_max",
    "put_": "put_",
    "histc": "_histc_cuda with floating point input",
    "bincount": "_bincount_cuda",
    "median.dim": "median CUDA with indices output",
    "median.dim_values": "median CUDA with indices output",
    "nanmedian.dim": "median CUDA with indices output",
    "nanmedian.dim_values": "median CUDA with indices output",
}
_REFUSED_ONLY_IF: Mapping[str, Callable[[tuple[Any, ...], Mapping[str, Any]], bool]] = {
    "bincount": _weights_given,
    "histc": _is_floating,
    "_embedding_bag_backward": _takes_maxima,
}


def deterministic(name: str, kernel: Kernel) -> Kernel:
    """Return a kernel that alerts, if determinism is asked for, where a GPU's operator lacks it."""
    base = name.partition(".")[0]
    called = NOT_DETERMINISTIC.get(name, NOT_DETERMINISTIC.get(base))
    if called is None:
        return kernel
    applies = _REFUSED_ONLY_IF.get(base)

    def run(*args: Any, **kwargs: Any) -> Any:
        is_asked = torch.are_deterministic_algorithms_enabled()
        if is_asked and (applies is None or applies(args, kwargs)):
            _alert(called)
        return kernel(*args, **kwargs)

    return run


def _alert(called: str) -> None:
    text = f"{called} does not have a deterministic implementation, but you set "
    warns_only: Any = torch.is_deterministic_algorithms_warn_only_enabled
    if warns_only():
        text += "'torch.use_deterministic_algorithms(True, warn_only=True)'."
        warnings.warn(text, UserWarning, stacklevel=2)
        return
    raise RuntimeError(
        f"{text}'torch.use_deterministic_algorithms(True)'. You can turn off determinism just for "
        "this operation, or you can use the 'warn_only=True' option, if that's acceptable for your "
        "application."
    )


_NAMES = {
    torch.bool: "Bool",
    torch.complex32: "ComplexHalf",
    torch.complex64: "ComplexFloat",
    torch.complex128: "ComplexDouble",
}


def _refuse_reduction(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Refuse a product, maximum or minimum that a GPU does not have for the tensor's type."""
    given = [each for each in (*args, *kwargs.values()) if isinstance(each, str)]
    if args[0].dtype in _NAMES and given and given[0] in ("multiply", "prod", "amax", "amin"):
        is_filled = not isinstance(args[3], Tensor)
        kernel = "fill_base_kernel_reduce_multiply" if is_filled else "gather_base_kernel_func"
        raise NotImplementedError(
            f"\"cuda_scatter_{kernel}\" not implemented for '{_NAMES[args[0].dtype]}'"
        )


def _refuse_host_numbers(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Refuse a number of the host as the first argument or the first factor of `addcmul`."""
    refused = "is not supported when calling addcmul on CUDA tensors."
    if not (args[0].is_cuda or args[0].dim()):
        raise RuntimeError(f"CPU Scalar support for self argument {refused}")
    if not (args[1].is_cuda or args[1].dim()):
        raise RuntimeError(
            f"CPU Scalar support for tensor1 argument {refused} However, CPU Scalar support for "
            "tensor2 is supported, please swap your tensor1 and tensor2 terms."
        )


_REFUSALS: Mapping[str, Callable[[tuple[Any, ...], Mapping[str, Any]], None]] = {
    **dict.fromkeys(("addcmul", "addcmul_"), _refuse_host_numbers),
    **dict.fromkeys(
        ("scatter.reduce", "scatter_.reduce", "scatter.value_reduce", "scatter_.value_reduce"),
        _refuse_reduction,
    ),
    **dict.fromkeys(("scatter_reduce.two", "scatter_reduce_.two"), _refuse_reduction),
}


def refusing(name: str, kernel: Kernel) -> Kernel:
    """Return a kernel of an operator that refuses the arguments that a GPU's refuses."""
    refuse = _REFUSALS.get(name)
    if refuse is None:
        return kernel

    def run(*args: Any, **kwargs: Any) -> Any:
        refuse(args, kwargs)
        return kernel(*args, **kwargs)

    return run


class _SyncDebugMode:
    """The reaction where a GPU would be waited for: 0 nothing, 1 a warning, 2 an error."""

    level = 0


_LEVELS = {"default": 0, "warn": 1, "error": 2}


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Warn of waits for the GPU, refuse them, or do neither.

    Raises:
        RuntimeError: there is no such mode.
    """
    level = _LEVELS.get(debug_mode, -1) if isinstance(debug_mode, str) else debug_mode
    if level not in _LEVELS.values():
        raise RuntimeError(
            "invalid value of debug_mode, expected one of `default`, `warn`, `error`"
        )
    _SyncDebugMode.level = level


def is_strict() -> bool:
    """Whether to refuse or warn of operators that are nondeterministic or wait for the GPU."""
    return _SyncDebugMode.level != 0 or torch.are_deterministic_algorithms_enabled()


def get_sync_debug_mode() -> int:
    """Return the mode as a number."""
    return _SyncDebugMode.level


def _always(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    return True


def _takes_over_and_waits(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a tensor is copied between the GPU and the host while the host waits."""
    source = args[1]
    is_between = isinstance(source, Tensor) and source.is_cuda != args[0].is_cuda
    return is_between and not (args[2:] and args[2]) and not kwargs.get("non_blocking")


def _counts(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether elements have to be counted: of a mask on the GPU, or of indices on the host."""
    given = [each for each in args[1] if each is not None]
    return any(each.is_cuda == (each.dtype in (torch.bool, torch.uint8)) for each in given)


def _puts_and_counts(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    # A number of the host is filled in by the mask, which nothing is counted for.
    fills = args[2].is_cpu and args[2].numel() == 1
    return _counts(args, kwargs) and not fills


def _size_is_unknown(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    return kwargs.get("output_size") is None and not (len(args) > 1 and args[1] is not None)


_WAIT_IF: Mapping[str, Callable[[tuple[Any, ...], Mapping[str, Any]], bool]] = {
    **dict.fromkeys(
        (
            *("nonzero", "masked_select", "equal", "allclose"),
            *("_unique2", "unique_dim", "unique_consecutive"),
        ),
        _always,
    ),
    "copy_": _takes_over_and_waits,
    "index.Tensor": _counts,
    "_index_put_impl_": _puts_and_counts,
    "repeat_interleave.Tensor": _size_is_unknown,
}


def waiting(name: str, kernel: Kernel) -> Kernel:
    """Return a kernel of an operator that reports where a GPU would be waited for."""
    waits = _WAIT_IF.get(name)
    if waits is None:
        return kernel

    def run(*args: Any, **kwargs: Any) -> Any:
        if _SyncDebugMode.level and waits(args, kwargs):
            report_wait()
        return kernel(*args, **kwargs)

    return run


def report_wait() -> None:
    """Report that a GPU is waited for, if that is asked for.

    Raises:
        RuntimeError: waits are to be refused.
    """
    if not _SyncDebugMode.level:
        return
    text = "called a synchronizing CUDA operation"
    if _SyncDebugMode.level > 1:
        raise RuntimeError(text)
    warnings.warn(text, UserWarning, stacklevel=3)
