# ruff: noqa: SLF001 (torch offers what a stand-in must change only under private names)
"""Operators that a GPU does in another way than the CPU, or that the CPU has no kernel for.

Among them are those of sparse CUDA tensors, whose parts are CUDA tensors, of indices and of values.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey, DispatchKeySet
from torch.utils._pytree import tree_map

from tkdebug.compat.cuda_standin import tensors
from tkdebug.compat.cuda_standin.attention import ATTENTION
from tkdebug.compat.cuda_standin.device import is_out_of_memory, out_of_memory
from tkdebug.compat.cuda_standin.gpu_alerts import report_wait
from tkdebug.compat.cuda_standin.random_kernels import RANDOM
from tkdebug.compat.cuda_standin.tensors import host, made, no_such_device, place, resize
from tkdebug.compat.cuda_standin.torch_internals import CPU_KEYS, is_pinned, names_with_kernel
from tkdebug.interpreter.memory.host_views import HOST_MEMORY
from tkdebug.runtime.launch.graph_capture import capture_in_force, refuse_while_capturing

Kernel = Callable[..., Any]
_ATEN = torch.ops.aten
_determinism: Any = torch.utils.deterministic
# Done over the memory as a whole, though they are made of other operators.
AS_A_WHOLE = frozenset(("convolution", "convolution_backward", "convolution_overrideable"))
# Halves are accumulated in fp32 and rounded once: for each result, the argument whose type it has,
# or None if it stays fp32.
ROUNDED_ONCE: Mapping[str, tuple[int | None, ...]] = {
    **dict.fromkeys(
        (
            *("mm", "bmm", "addmm", "addmm_", "baddbmm", "baddbmm_", "addbmm", "addbmm_"),
            *("addmv", "addmv_", "mv", "dot", "vdot", "_addmm_activation", "addr", "addr_"),
            *("convolution", "linalg_matrix_exp"),
        ),
        (0,),
    ),
    "convolution_backward": (1, 2, 2),
    **dict.fromkeys(("grid_sampler_2d", "grid_sampler_3d"), (0, None)),
    **dict.fromkeys(("grid_sampler_2d_backward", "grid_sampler_3d_backward"), (1, 2)),
    **dict.fromkeys(("fractional_max_pool2d", "fractional_max_pool3d"), (0, None)),
    "native_layer_norm": (0, None, None),
    "native_layer_norm_backward": (1, 5, 6),
    "native_group_norm": (0, 0, 0),
    "native_group_norm_backward": (1, 4, 4),
    "native_batch_norm": (0, None, None),
    "_native_batch_norm_legit": (0, None, None),
    "native_batch_norm_backward": (1, 2, 2),
}
# Written although the schema does not say so: running mean and variance.
UNDECLARED_WRITES: Mapping[str, tuple[int, ...]] = {"native_batch_norm": (3, 4)}
# Operators that take tensors of the host beside CUDA tensors.
MIXED = frozenset(
    (
        *("index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_"),
        *("_unsafe_index_put", "_foreach_copy_", "_copy_from", "_copy_from_and_resize"),
        *("_pack_padded_sequence", "_ctc_loss", "_ctc_loss_backward", "_to_copy", "_foreach_copy"),
    )
)
# Operators of the CPU alone, in builds for CUDA, too.
OF_THE_CPU_ALONE = (
    "histogram _histogramdd from_file _add_relu quantized_lstm quantized_gru mkldnn_rnn_layer "
    "_spdiags _dyn_quant _weight_int4pack_mm_for_cpu _convert_weight_to_int4pack_for_cpu "
    "_upsample_lanczos2d_aa _scaled_dot_product_flash_attention_for_cpu _empty_affine_quantized "
    "_empty_per_channel_affine_quantized to_mkldnn slow_conv3d_forward"
).split()
# Of sparse tensors, by the key of CUDA: the CPU's key, whose kernels do the work.
SPARSE_KEYS = {
    "SparseCUDA": DispatchKeySet(DispatchKey.SparseCPU),
    "SparseCsrCUDA": DispatchKeySet(DispatchKey.SparseCsrCPU),
}
# Made of operators on the parts, wherever these are.
_OF_PARTS = frozenset(
    (
        *("_sparse_coo_tensor_with_dims", "_sparse_coo_tensor_with_dims_and_tensors", "empty_like"),
        *("empty.memory_format", "sparse_resize_", "sparse_resize_and_clear_", "resize_", "copy_"),
        *("resize_as_sparse_", "copy_sparse_to_sparse_", "_coalesced_", "zero_", "clone"),
    )
)
# A GPU has no kernel for it, of sparse tensors.
_SPARSE_OF_THE_CPU_ALONE = "_sparse_mm_reduce_impl"
_TYPES = {bool: torch.bool, int: torch.int64}
# Rows of no more elements are sorted sooner than searched for equal values.
_MOST_SORTED = 1024


def refused(name: str) -> Kernel:
    """Return a kernel that raises: the operator has no kernel without a GPU."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"{name} has no kernel for the CPU, on which 'cuda' runs here; it takes a GPU"
        )

    return refuse


def _on_host(tensor: Tensor) -> Tensor:
    return host(tensor) if tensor.is_cuda else tensor


def _copy(self: Tensor, src: Tensor | complex, non_blocking: bool = False) -> Tensor:
    if not isinstance(src, Tensor):
        return self.fill_(src)
    if self.is_cuda != src.is_cuda and not (self.is_cuda and not src.dim()):
        _refuse_to_capture(src if self.is_cuda else self)
    with torch._C.DisableTorchFunction():
        _on_host(self).copy_(_on_host(src))
    return self


def _refuse_to_capture(of_host: Tensor) -> None:
    """Refuse a copy between the GPU and a tensor of the host that CUDA does not capture."""
    if capture_in_force() is not None and not is_pinned(of_host.untyped_storage()):
        refuse_while_capturing(
            "a copy between the GPU and host memory that is not pinned",
            "copy before the capture or after the replay, or use tensor.pin_memory() and "
            "non_blocking=True",
        )


def _copy_from(self: Tensor, dst: Tensor, non_blocking: bool = False) -> Tensor:
    return _copy(dst, self)


def _compared(op: Any) -> Kernel:
    """Return a kernel that runs a comparison, made of a dozen operators, as one step on the CPU."""
    on_cpu = op._handle.redispatch_boxed

    def run(self: Tensor, other: Tensor, *tolerances: Any, **options: Any) -> Any:
        if self.is_cuda and other.is_cuda:
            self, other = host(self), host(other)
        with torch._C.DisableTorchFunction():
            result = on_cpu(CPU_KEYS, self, other, *tolerances, **options)
            is_placed = isinstance(result, Tensor) and result.is_cpu
            return place(result) if is_placed else result

    return run


_function_modes = torch._C._len_torch_function_stack
_clone_on_cpu = _ATEN.clone.default._handle.redispatch_boxed
_copy_on_cpu = _ATEN._to_copy.default._handle.redispatch_boxed


def _clone(self: Tensor, memory_format: Any = None) -> Tensor:
    with torch._C.DisableTorchFunction():
        return place(_clone_on_cpu(CPU_KEYS, _on_host(self), memory_format=memory_format))


def _to_copy(self: Tensor, device: Any = None, **options: Any) -> Any:
    """Return a copy of a tensor of any device on any device."""
    is_to_host = device is not None and device.type == "cpu" and self.is_cuda
    if is_to_host and not options.get("non_blocking") and capture_in_force() is None:
        report_wait()
        is_plain = len(options) == 2 and options.get("dtype") is self.dtype
        if is_plain and "layout" in options and not _function_modes():
            # As `Tensor.cpu` asks for.
            return host(self).clone()
        with torch._C.DisableTorchFunction():
            return _copy_on_cpu(CPU_KEYS, _on_host(self), **options)
    if self.is_cpu and device is not None and device.type == "cuda":
        return _sent(self, device, options)
    if not self.is_cuda or not (device is None or device.type == "cuda"):
        return _copy_on_cpu(CPU_KEYS, self, device=device, **options)
    if device is not None and device.index not in (None, 0):
        raise no_such_device(device.index)
    options.pop("non_blocking", None)
    options.pop("pin_memory", None)
    with torch._C.DisableTorchFunction():
        return place(_copy_on_cpu(CPU_KEYS, _on_host(self), **options))


def _sent(self: Tensor, device: torch.device, options: dict[str, Any]) -> Tensor:
    """Return a copy of a tensor of the host on the CUDA device."""
    if device.index not in (None, 0):
        raise no_such_device(device.index)
    if self.dim():
        _refuse_to_capture(self)
    if not options.pop("non_blocking", False):
        report_wait()
    options.pop("pin_memory", None)
    with torch._C.DisableTorchFunction():
        try:
            return place(_copy_on_cpu(CPU_KEYS, self, **options))
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise out_of_memory(error) from None
            raise


def _local_scalar(self: Tensor) -> Any:
    report_wait()
    # The result of a reduction, mostly: it takes no view of its memory.
    memory: Tensor | None = getattr(self.untyped_storage(), HOST_MEMORY, None)
    with torch._C.DisableTorchFunction():
        if memory is None or memory.numel() > 1 or memory.dtype is not self.dtype or self.is_conj():
            memory = host(self)
        return memory.item()


def _resize(self: Tensor, size: Any, memory_format: Any = None) -> Tensor:
    count = 1
    for length in size:
        count *= length
    needed_bytes = (count + self.storage_offset()) * self.element_size()
    storage = self.untyped_storage()
    before = storage.nbytes()
    if count and needed_bytes > before:
        grown = resize(storage, int(needed_bytes))
        if torch.are_deterministic_algorithms_enabled() and _determinism.fill_uninitialized_memory:
            _fill_unset(grown[before:].view(self.dtype))
    return _ATEN.resize_.default.redispatch(  # type: ignore[no-any-return]
        CPU_KEYS, self, size, memory_format=memory_format
    )


def _fill_unset(memory: Tensor) -> None:
    """Fill memory as torch fills unset memory, for deterministic programs."""
    if memory.dtype.is_floating_point or memory.dtype.is_complex:
        memory.fill_(math.nan)
    elif memory.dtype is torch.bool:
        memory.fill_(True)
    else:
        memory.fill_(torch.iinfo(memory.dtype).max)


def _histc(self: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Tensor:
    of_cpu = host(self)
    wide = of_cpu if of_cpu.is_floating_point() else of_cpu.double()
    return place(torch.histc(wide, bins, min, max).to(self.dtype))


def _histc_out(self: Tensor, bins: int = 100, min: Any = 0, max: Any = 0, *, out: Tensor) -> Tensor:
    return _resize(out, (bins,)).copy_(_histc(self, bins, min, max))


def _softmax(function: Callable[..., Tensor]) -> Kernel:
    def run(self: Tensor, dim: int, half_to_float: bool) -> Tensor:
        of_cpu = host(self)
        return place(function(of_cpu.float() if half_to_float else of_cpu, dim))

    return run


def _softmax_backward(op: Any) -> Kernel:
    def run(grad: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Tensor:
        of_grad, of_output = host(grad), host(output)
        result = op.redispatch(CPU_KEYS, of_grad, of_output, dim, grad.dtype)
        # For other mixtures a GPU's gradient has the type of its operand.
        return place(result.to(input_dtype) if grad.dtype is torch.float32 else result)

    return run


def _product(plain: Any, factors: int) -> Kernel:
    """Return a kernel of a product whose result has a given type, such as `mm.dtype`."""

    def multiply(*args: Any, **kwargs: Any) -> Tensor:
        out = kwargs.pop("out", None)
        # The type follows the factors.
        values = [host(each) for each in args[:factors]]
        with torch._C.DisableTorchFunction():
            wide = [value.float() if value.is_floating_point() else value for value in values]
            result = plain(*wide, *args[factors + 1 :], **kwargs).to(args[factors])
            if out is None:
                return place(result)
            host(out).copy_(result)
        return out  # type: ignore[no-any-return]

    return multiply


def _lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    gates = input_gates + hidden_gates
    for bias in (input_bias, hidden_bias):
        gates = gates if bias is None else gates + bias
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat((i, f, g, o), 1)


def _lstm_cell_backward(
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    cx: Tensor,
    cy: Tensor,
    workspace: Tensor,
    has_bias: bool,
) -> tuple[Any, ...]:
    if grad_hy is None and grad_cy is None:
        return None, None, None
    i, f, g, o = workspace.chunk(4, 1)
    squashed = cy.tanh()
    of_output = torch.zeros_like(cy) if grad_hy is None else grad_hy
    of_cell = of_output * o * (1 - squashed * squashed)
    of_cell = of_cell if grad_cy is None else of_cell + grad_cy
    gates = torch.cat(
        (
            of_cell * g * i * (1 - i),
            of_cell * cx * f * (1 - f),
            of_cell * i * (1 - g * g),
            of_output * squashed * o * (1 - o),
        ),
        1,
    )
    return gates, of_cell * f, gates.sum(0) if has_bias else None


def _gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    of_input = input_gates if input_bias is None else input_gates + input_bias
    of_hidden = hidden_gates if hidden_bias is None else hidden_gates + hidden_bias
    ir, ii, in_ = of_input.chunk(3, 1)
    hr, hi, hn = of_hidden.chunk(3, 1)
    reset, update = (ir + hr).sigmoid(), (ii + hi).sigmoid()
    new = (in_ + reset * hn).tanh()
    return new + update * (hx - new), torch.cat((reset, update, new, hx, hn), 1)


def _gru_cell_backward(grad_hy: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Any, ...]:
    reset, update, new, hx, hn = workspace.chunk(5, 1)
    of_update = grad_hy * (hx - new) * update * (1 - update)
    of_new = grad_hy * (1 - update) * (1 - new * new)
    of_reset = of_new * hn * reset * (1 - reset)
    of_input = torch.cat((of_reset, of_update, of_new), 1)
    of_hidden = torch.cat((of_reset, of_update, of_new * reset), 1)
    bias = (of_input.sum(0), of_hidden.sum(0)) if has_bias else (None, None)
    return of_input, of_hidden, grad_hy * update, *bias


def _rms_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: Any,
    rstd: Tensor,
    weight: Tensor | None,
    output_mask: Any,
) -> tuple[Tensor | None, Tensor | None]:
    grad, x, scale = grad_out.float(), input.float(), rstd.float()
    inner = list(range(x.dim() - len(normalized_shape), x.dim()))
    outer = list(range(x.dim() - len(normalized_shape)))
    weighted = grad if weight is None else grad * weight.float()
    mean = (weighted * x).mean(inner, keepdim=True)
    of_input = (scale * (weighted - x * scale * scale * mean)).to(input.dtype)
    of_weight = None
    if weight is not None:
        whole = grad * x * scale
        of_weight = (whole.sum(outer) if outer else whole).to(weight.dtype)
    return of_input if output_mask[0] else None, of_weight if output_mask[1] else None


def _set(op: Any) -> Kernel:
    return functools.partial(op._handle.redispatch_boxed, CPU_KEYS)


def _bags_as_a_gpu_has(op: Any) -> Callable[[Kernel], Kernel]:
    """Return a decorator that gives the results of embedding bags the shapes of a GPU's.

    The CPU leaves out the bag of each index where it needs none, and the size of an empty last bag.
    A GPU's shapes differ by torch's version; torch's kernel for meta tensors gives them.
    """

    def complete(kernel: Kernel) -> Kernel:
        def run(weight: Tensor, indices: Tensor, offsets: Tensor, *rest: Any) -> Any:
            output, bags, sizes, maxima = kernel(weight, indices, offsets, *rest)
            with torch._C.DisableTorchFunction():
                given = (weight, indices, offsets, *rest)
                meta = [each.to("meta") if isinstance(each, Tensor) else each for each in given]
                shapes = [each.shape for each in op(*meta)]
                if bags.shape != shapes[1]:
                    places = torch.arange(len(indices), device=indices.device)
                    found = torch.searchsorted(offsets.long(), places, right=True)
                    bags = found.sub_(1).to(bags.dtype)
                if sizes.shape != shapes[2]:
                    sizes = torch.cat((sizes, sizes.new_zeros(shapes[2][0] - len(sizes))))
                if maxima.shape != shapes[3]:
                    maxima = maxima.new_zeros(shapes[3])
            return output, bags, sizes, maxima

        return run

    return complete


def _lowest_of_equals(kernel: Kernel) -> Kernel:
    """Return a `topk` that takes the lowest indices of equal values.

    An H200 takes the same ones, and returns them in another order.
    """

    def run(self: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
        is_small = self.dim() and 0 < k <= self.size(dim) <= _MOST_SORTED
        if is_small and self.dtype is not torch.bool and not self.is_complex():
            with torch._C.DisableTorchFunction():
                ordered = host(self).sort(stable=True, dim=dim, descending=largest)
                firsts = (each.narrow(dim, 0, k) for each in ordered)
                # Of a transposed tensor, too, topk's results are contiguous, and sort's are not.
                return tuple(
                    place(each.clone(memory_format=torch.contiguous_format)) for each in firsts
                )
        values, indices = kernel(self, k, dim, largest, sorted)
        if not self.dim() or not indices.numel() or k == self.size(dim):
            return values, indices
        with torch._C.DisableTorchFunction():
            # Rows of a view write through to what is returned.
            whole, chosen, places = (host(x).movedim(dim, -1) for x in (self, values, indices))
            last = (chosen.amin if largest else chosen.amax)(-1, keepdim=True)
            has_others = (whole == last).sum(-1) != (chosen == last).sum(-1)
            if has_others.any():
                ordered = whole[has_others].sort(stable=True, dim=-1, descending=largest)
                chosen[has_others] = ordered.values[..., :k]
                places[has_others] = ordered.indices[..., :k]
        return values, indices

    return run


# Changes to the kernels that operators get by themselves.
COMPLETED: Mapping[str, Callable[[Kernel], Kernel]] = {
    "topk": _lowest_of_equals,
    "_embedding_bag": _bags_as_a_gpu_has(_ATEN._embedding_bag.default),
    "_embedding_bag_forward_only": _bags_as_a_gpu_has(_ATEN._embedding_bag_forward_only.default),
}
# By the operators' names in `aten`.
SPECIAL: Mapping[str, Kernel] = {
    "empty.memory_format": made(_ATEN.empty.memory_format),
    "empty_strided": made(_ATEN.empty_strided.default),
    "_efficientzerotensor": made(_ATEN.zeros.default),
    "zeros": made(_ATEN.zeros.default),
    "ones": made(_ATEN.ones.default),
    "full": made(_ATEN.full.default),
    "arange": made(_ATEN.arange.default),
    "arange.start": made(_ATEN.arange.start),
    "arange.start_step": made(_ATEN.arange.start_step),
    "scalar_tensor": made(_ATEN.scalar_tensor.default),
    "clone": _clone,
    # Memory of CUDA tensors here is not shared until it is written.
    "_lazy_clone": _clone,
    "_to_copy": _to_copy,
    "_local_scalar_dense": _local_scalar,
    "copy_": _copy,
    "_copy_from": _copy_from,
    "resize_": _resize,
    "set_": _set(_ATEN.set_.default),
    "set_.source_Storage": _set(_ATEN.set_.source_Storage),
    "set_.source_Storage_storage_offset": _set(_ATEN.set_.source_Storage_storage_offset),
    "set_.source_Tensor": _set(_ATEN.set_.source_Tensor),
    "allclose": _compared(_ATEN.allclose.default),
    "isclose": _compared(_ATEN.isclose.default),
    "histc": _histc,
    "histc.out": _histc_out,
    "_softmax": _softmax(torch.softmax),
    "_log_softmax": _softmax(torch.log_softmax),
    "_softmax_backward_data": _softmax_backward(_ATEN._softmax_backward_data.default),
    "_log_softmax_backward_data": _softmax_backward(_ATEN._log_softmax_backward_data.default),
    "mm.dtype": _product(torch.mm, 2),
    "mm.dtype_out": _product(torch.mm, 2),
    "bmm.dtype": _product(torch.bmm, 2),
    "bmm.dtype_out": _product(torch.bmm, 2),
    "addmm.dtype": _product(torch.addmm, 3),
    "addmm.dtype_out": _product(torch.addmm, 3),
    "baddbmm.dtype": _product(torch.baddbmm, 3),
    "baddbmm.dtype_out": _product(torch.baddbmm, 3),
    "_thnn_fused_lstm_cell": _lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": _lstm_cell_backward,
    "_thnn_fused_gru_cell": _gru_cell,
    "_thnn_fused_gru_cell_backward": _gru_cell_backward,
    "_fused_rms_norm_backward": _rms_norm_backward,
    **ATTENTION,
    **RANDOM,
    "_fused_sdp_choice": lambda *args, **kwargs: 0,
    **dict.fromkeys(
        (
            *("_use_cudnn_ctc_loss", "_use_cudnn_ctc_loss.Tensor"),
            *("_use_miopen_ctc_loss", "_use_miopen_ctc_loss.Tensor"),
        ),
        lambda *args, **kwargs: False,
    ),
    "record_stream": lambda tensor, stream: None,
}


def _is_pinned(self: Tensor, device: Any = None) -> bool:
    return is_pinned(self.untyped_storage())


# For the CPU's tensors.
FOR_THE_CPU: Mapping[str, Kernel] = {"is_pinned": _is_pinned}


def sparse_kernels(key: str) -> Iterator[tuple[str, Kernel]]:
    """Yield the names of operators in `aten` with their kernels for a sparse key of CUDA."""
    for name in names_with_kernel("aten", key.replace("CUDA", "CPU")):
        if not name.startswith(_SPARSE_OF_THE_CPU_ALONE):
            yield name, functools.partial(_first_call, name, key)


@functools.cache
def _kernel_of(name: str, key: str) -> Kernel:
    base, _, overload = name.partition(".")
    op = getattr(getattr(_ATEN, base), overload or "default")
    arguments, returned = op._schema.arguments, op._schema.returns
    written = [at for at, each in enumerate(arguments) if _writes(each)]
    on_cpu = functools.partial(op._handle.redispatch_boxed, SPARSE_KEYS[key])
    is_view = not written and any(each.alias_info is not None for each in returned)
    makes_no_tensor = not any("Tensor" in str(each.type) for each in returned)
    if name in _OF_PARTS or is_view or makes_no_tensor:
        return on_cpu
    names = [each.name for each in arguments]
    takes_tensor = [str(each.type) == "Tensor" for each in arguments]

    def run(*args: Any, **kwargs: Any) -> Any:
        values, keywords = tree_map(_of_host, (args, kwargs))
        values = tuple(map(_as_tensor, values, takes_tensor))
        result = on_cpu(*values, **keywords)
        own = None
        for at in written:
            own = args[at] if at < len(args) else kwargs[names[at]]
            _store(own, values[at] if at < len(args) else keywords[names[at]])
        return tree_map(_placed, result) if own is None else own

    return run


def _first_call(name: str, key: str, *args: Any, **kwargs: Any) -> Any:
    with torch._C.DisableTorchFunction():
        return _kernel_of(name, key)(*args, **kwargs)


def _writes(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _of_host(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu")
    return tensors.host(value) if isinstance(value, Tensor) and value.is_cuda else value


def _as_tensor(value: Any, is_wanted: bool) -> Any:
    """Return a number as a tensor if an operator takes one: callers may give either."""
    if not is_wanted or isinstance(value, Tensor):
        return value
    return torch.scalar_tensor(value, dtype=_TYPES.get(type(value)), device="cpu")


def _placed(value: Any) -> Any:
    return tensors.place(value) if isinstance(value, Tensor) and value.is_cpu else value


def _store(own: Tensor, of_cpu: Tensor) -> None:
    """Copy to a CUDA tensor the values that were written to the CPU tensor over its memory."""
    if own.layout is torch.strided:
        if own.shape != of_cpu.shape:
            tensors.replace(own, of_cpu)
    elif own.layout is torch.sparse_coo or own._nnz() != of_cpu._nnz():
        own.resize_as_sparse_(of_cpu).copy_(of_cpu)
