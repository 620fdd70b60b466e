# ruff: noqa: SLF001 (torch offers what a stand-in must change only under private names)
"""Kernels of torch's operators for CUDA tensors of the stand-in.

An operator that has a kernel for the CPU gets one for CUDA, which runs the former on CPU tensors
over the same memory and makes CUDA tensors of the results. Views are made of the CUDA tensors
themselves. `special_kernels` has operators that a GPU computes in another way.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from tkdebug.compat.cuda_standin.device import is_out_of_memory, out_of_memory
from tkdebug.compat.cuda_standin.generators import with_random_numbers
from tkdebug.compat.cuda_standin.gpu_alerts import (
    NOT_DETERMINISTIC,
    deterministic,
    is_strict,
    refusing,
    waiting,
)
from tkdebug.compat.cuda_standin.special_kernels import (
    AS_A_WHOLE,
    COMPLETED,
    FOR_THE_CPU,
    MIXED,
    OF_THE_CPU_ALONE,
    ROUNDED_ONCE,
    SPARSE_KEYS,
    SPECIAL,
    UNDECLARED_WRITES,
    refused,
    sparse_kernels,
)
from tkdebug.compat.cuda_standin.tensors import host, made, place, replace, resize, tensors_in
from tkdebug.compat.cuda_standin.torch_internals import (
    CPU,
    CPU_KEYS,
    names,
    names_with_kernel,
)

Kernel = Callable[..., Any]
_INDEXING = ("index.Tensor", "_index_put_impl_")
_WRONG_INDEX = "indices should be either on cpu or on the same device as the indexed tensor (cpu)"

_in_force: list[Any] = []
_COMPOSITES = (
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
    "CompositeImplicitAutograd",
)
# Composite operators that are run in parts: views and their products, storage, other devices.
_STEPS_APART = frozenset(
    (
        "alias ccol_indices col_indices crow_indices detach diagonal expand indices lift permute "
        "row_indices select slice split split_with_sizes squeeze t transpose unbind unsqueeze "
        "unsafe_split unsafe_split_with_sizes values view copy resize resize_as set as_strided "
        "empty_permuted lift_fresh _pack_padded_sequence"
    ).split()
)
_PARTS_APART = (
    *("_unsafe_view", "new_", "sparse", "_sparse", "_coalesced", "copy_sparse", "resize_as_sparse"),
    *("_foreach_copy", "_convolution", "_conj", "_neg_view", "_fw_primal", "_make_dual", "_test"),
    # Their scalars are on the host.
    *("_foreach_addcdiv.Tensor", "_foreach_addcdiv_.Tensor"),
    *("_foreach_addcmul.Tensor", "_foreach_addcmul_.Tensor"),
)
_any_autocast: Callable[[], bool] = torch._C._is_any_autocast_enabled
_HALVES = (torch.float16, torch.bfloat16)
_WIDE = {**dict.fromkeys(_HALVES, torch.float32), torch.complex32: torch.complex64}
_NOT_FOR_HALVES = (
    "not implemented for 'Half'",
    "not implemented for 'BFloat16'",
    "MKL FFT doesn't",
)
_TENSORS = ("Tensor", "Optional[Tensor]")
_TYPES = {
    bool: torch.bool,
    int: torch.int64,
    float: torch.float64,
    complex: torch.complex128,
}
_OF_THE_CPU_ALONE = tuple(OF_THE_CPU_ALONE)
_SAME_DEVICE = "Expected all tensors to be on the same device"
_NAMES_ARGUMENT_FIRST = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 9)


def register_kernels() -> Callable[[], None]:
    """Give torch's operators kernels for CUDA; return a function that removes them."""
    libraries = [_library("aten"), _library("c10d"), _library("aten", "CPU")]
    libraries.append(_library("inductor"))
    with warnings.catch_warnings():
        # A build for CUDA has kernels already, and warns of each that is replaced.
        warnings.simplefilter("ignore", UserWarning)
        for name, kernel in FOR_THE_CPU.items():
            libraries[2].impl(name, "CPU", kernel, False)
        for name, kernel in _aten_kernels():
            alerting = refusing(name, waiting(name, deterministic(name, kernel)))
            libraries[0].impl(name, "CUDA", alerting, False)
        libraries[3].impl("resize_storage_bytes_", "CUDA", _resize_storage_bytes, False)
        for key in SPARSE_KEYS:
            libraries.append(_library("aten", key))
            for name, kernel in sparse_kernels(key):
                libraries[-1].impl(name, key, kernel, False)
        if torch.distributed.is_available():
            for name in names_with_kernel("c10d", "CPU"):
                libraries[1].impl(name, "CUDA", _of_first_call(f"c10d::{name}"), False)

    # Callers may keep nothing of the stand-in, and kernels end with their library.
    _in_force.extend(libraries)

    def undo() -> None:
        for library in libraries:
            library.reset()
            _in_force.remove(library)

    return undo


def _library(namespace: str, key: str = "CUDA") -> Any:
    return torch._C._dispatch_library("IMPL", namespace, key, __file__, 0)


def _resize_storage_bytes(variable: Tensor, new_size: int) -> None:
    resize(variable.untyped_storage(), new_size)


def _index(full: str) -> Kernel:
    """Return a kernel of indexing, which refuses CUDA indices of a tensor that is not on CUDA."""
    kernel = _of_first_call(full)

    def index(self: Tensor, indices: Any, *rest: Any, **options: Any) -> Any:
        if not self.is_cuda and any(each is not None and each.is_cuda for each in indices):
            raise RuntimeError(_WRONG_INDEX)
        return kernel(self, indices, *rest, **options)

    return index


def _aten_kernels() -> Iterator[tuple[str, Kernel]]:
    of_cpu, of_cuda = (set(names_with_kernel("aten", key)) for key in ("CPU", "CUDA"))
    composite = {name for key in _COMPOSITES for name in names_with_kernel("aten", key)}
    explicit = composite - set(names_with_kernel("aten", _COMPOSITES[-1]))
    for name in names("aten"):
        full = f"aten::{name}"
        if name in SPECIAL:
            yield name, SPECIAL[name]
        elif name in _INDEXING:
            yield name, _index(full)
        elif name.startswith(_OF_THE_CPU_ALONE):
            continue
        elif name in COMPLETED:
            yield name, COMPLETED[name](_of_first_call(full))
        elif name in of_cpu or name in AS_A_WHOLE:
            yield name, _of_first_call(full)
        elif name in explicit and _is_one_step(name):
            yield name, _of_first_call(full, _one_step)
        elif name in of_cuda:
            # In a build for CUDA alone.
            yield name, _of_first_call(full, _redispatched) if name in composite else refused(full)


def operator(full_name: str) -> Any:
    """Return an operator by its name, such as `aten::add.Tensor`."""
    namespace, _, name = full_name.partition("::")
    base, _, overload = name.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")


def _is_one_step(name: str) -> bool:
    base = name.partition(".")[0]
    return not (
        base.rstrip("_") in _STEPS_APART
        or base.endswith("_like")
        or name.startswith(_PARTS_APART)
        or name in NOT_DETERMINISTIC
    )


def _of_first_call(full_name: str, make: Callable[[Any], Kernel] | None = None) -> Kernel:
    """Return a kernel that is made, by `make` or `kernel_of`, when it is first called."""
    run: Kernel | None = None
    is_redispatched = make is _redispatched

    def kernel(*args: Any, **kwargs: Any) -> Any:
        nonlocal run
        if run is None:
            run = (make or kernel_of)(operator(full_name))
        if not is_redispatched and torch._C._len_torch_function_stack():
            with torch._C.DisableTorchFunction():
                return run(*args, **kwargs)
        return run(*args, **kwargs)

    return kernel


def _redispatched(op: Any) -> Kernel:
    return functools.partial(op._handle.redispatch_boxed, CPU_KEYS)


def _one_step(op: Any) -> Kernel:
    """Return a kernel that runs a composite operator on the CPU as a whole.

    Where its parts would give another result than the whole, each runs by its own CUDA kernel.
    """
    in_parts, schema = _redispatched(op), op._schema
    writes = any(_writes(argument) for argument in schema.arguments)
    makes = any("Tensor" in str(each.type) and each.alias_info is None for each in schema.returns)
    takes_device = any("Device" in str(argument.type) for argument in schema.arguments)
    moves_view = torch.Tag.inplace_view in op.tags
    takes_tensor = any("Tensor" in str(argument.type) for argument in schema.arguments)
    if takes_device and not takes_tensor and makes and not _is_random(op):
        return made(op)
    fills = any(argument.is_out for argument in schema.arguments)
    if takes_device or moves_view or fills or _is_random(op) or not (writes or makes):
        return in_parts
    whole = _Kernel(op)
    rounds_alike = torch.Tag.pointwise in op.tags or "_foreach_" in schema.name

    def run(*args: Any, **kwargs: Any) -> Any:
        if _any_autocast() or is_strict() or (not rounds_alike and whole.has_halves(args)):
            return in_parts(*args, **kwargs)
        return whole.run(*args, **kwargs)

    return run


def kernel_of(op: Any) -> Kernel:
    """Return the kernel for CUDA of an operator that has one for the CPU."""
    schema = op._schema
    is_written = any(_writes(argument) for argument in schema.arguments)
    if not is_written and any(each.alias_info is not None for each in schema.returns):
        return _redispatched(op)
    kernel = _Kernel(op).run
    return with_random_numbers(op, kernel) if _is_random(op) else kernel


def _writes(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _is_random(op: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in op.tags or any(
        "Generator" in str(argument.type) for argument in op._schema.arguments
    )


class _Kernel:
    """Runs one operator on the CPU.

    Args:
        op: the operator.
    """

    def __init__(self, op: Any) -> None:
        self._op = op
        self._name = op._schema.name.partition("::")[2]
        self._on_cpu = _redispatched(op)
        arguments = op._schema.arguments
        kinds = {at: str(argument.type) for at, argument in enumerate(arguments)}
        self._tensors = tuple(at for at, kind in kinds.items() if kind in _TENSORS)
        self._others = tuple(
            at
            for at, kind in kinds.items()
            if kind not in _TENSORS and ("Tensor" in kind or "Device" in kind)
        )
        self._written = tuple(at for at, argument in enumerate(arguments) if _writes(argument))
        self._names = tuple(argument.name for argument in arguments)
        # A written argument that is given back is the very tensor.
        self._gives_back = tuple(self._written_by(each.alias_info) for each in op._schema.returns)
        self._is_in_place = self._written == self._gives_back == (0,)
        self._rounded = ROUNDED_ONCE.get(self._name)
        self._refuses_mixtures = self._rounded == (0,) or self._name == "convolution_backward"
        owners: tuple[Any, ...] = (torch._C._VariableFunctions, torch.special, torch._C._nn, Tensor)
        found = (getattr(owner, self._name, None) for owner in owners)
        self._of_python = next((each for each in found if each is not None), None)

    def _written_by(self, alias: Any) -> int | None:
        for at in self._written if alias is not None else ():
            if self._op._schema.arguments[at].alias_info.before_set & alias.before_set:
                return at
        return None

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the operator of CUDA tensors on the CPU."""
        values = list(args)
        count, on_cpu = len(values), self._on_cpu
        for at in self._tensors:
            if at >= count:
                break
            value = values[at]
            if isinstance(value, Tensor):
                values[at] = host(value) if value.is_cuda else self._elsewhere(value, args)
            elif value is not None:
                on_cpu = self._of_numbers
        for at in self._others:
            if at < count:
                values[at] = self._converted(values[at])
        keywords = kwargs and {name: self._keyword(name, kwargs[name]) for name in kwargs}
        try:
            if self._rounded is None or not self.has_halves(values):
                result = on_cpu(*values, **keywords)
            else:
                result = self._in_fp32(values, keywords)
        except RuntimeError as error:
            result = self._after(error, values, keywords)
        if self._written:
            return self._given_back(args, kwargs, result, values, keywords)
        return place(result) if type(result) is Tensor else _placed(result)

    def _of_numbers(self, *values: Any, **keywords: Any) -> Any:
        """Run the operator with a number in place of a tensor: a number's type counts less.

        Only torch's functions in Python make tensors that count as numbers.
        """
        if self._of_python is None:
            values = tuple(
                torch.scalar_tensor(value, dtype=_TYPES[type(value)])
                if at in self._tensors and type(value) in _TYPES
                else value
                for at, value in enumerate(values)
            )
            return self._on_cpu(*values, **keywords)
        return self._of_python(*values, **keywords)

    def _elsewhere(self, value: Tensor, args: Sequence[Any] = ()) -> Tensor:
        """Return a tensor that is on no CUDA device, where a GPU would take it.

        Raises:
            RuntimeError: a GPU would not take it.
        """
        if value.dim() == 0 or self._name in MIXED or not value.is_cpu:
            return value
        raise RuntimeError(_two_devices(self._op, args))

    def _converted(self, value: Any) -> Any:
        """Return an argument that is a list of tensors or a device, for the CPU."""
        if isinstance(value, Tensor):
            return host(value) if value.is_cuda else self._elsewhere(value)
        if isinstance(value, (list, tuple)):
            return [self._converted(each) for each in value]
        return CPU if isinstance(value, torch.device) else value

    def _keyword(self, name: str, value: Any) -> Any:
        if type(value) in (float, int):
            return value
        if isinstance(value, Tensor) and value.is_cuda and not value.numel():
            # The tensor to fill grows, which memory of a CUDA tensor cannot.
            return torch.empty(value.shape, dtype=value.dtype, device=CPU)
        if name == "pin_memory":
            return None
        converted = self._converted(value)
        # One that is filled may be given another shape.
        return converted.detach() if isinstance(converted, Tensor) else converted

    def has_halves(self, values: Sequence[Any]) -> bool:
        """Whether an argument that is a tensor has halves."""
        return any(
            isinstance(values[at], Tensor) and values[at].dtype in _WIDE
            for at in self._tensors
            if at < len(values)
        )

    def _in_fp32(self, values: list[Any], keywords: dict[str, Any]) -> Any:
        """Run the operator with halves as fp32, and round its results once."""
        wide: list[tuple[Tensor, Tensor]] = []

        def widen(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return [widen(each) for each in value]
            if not isinstance(value, Tensor) or value.dtype not in _WIDE:
                return value
            wide.append((value, value.to(_WIDE[value.dtype])))
            return wide[-1][1]

        if self._refuses_mixtures and len(_types((*values, *keywords.values()))) > 1:
            # torch has its own answer to that.
            return self._on_cpu(*values, **keywords)
        wide_values = [widen(value) for value in values]
        wide_keywords = {name: widen(value) for name, value in keywords.items()}
        result = self._on_cpu(*wide_values, **wide_keywords)
        if not wide:
            return result
        for at in (*self._written, *UNDECLARED_WRITES.get(self._name, ())):
            before, after = (
                _argument(self._names, at, values, keywords),
                _argument(self._names, at, wide_values, wide_keywords),
            )
            if before is not after:
                _store(before, after)
        if self._written and any(at is not None for at in self._gives_back):
            return result
        return self._narrowed(result, values, wide[0][0].dtype)

    def _narrowed(self, result: Any, values: list[Any], half: torch.dtype) -> Any:
        if isinstance(result, Tensor):
            half = torch.float16 if half is torch.complex32 else half
            if result.dtype == torch.complex64 and half == torch.float16:
                return result.to(torch.complex32)
            return result.to(half) if result.dtype == torch.float32 else result
        if not isinstance(result, (list, tuple)):
            return result
        of = self._rounded or (0,) * len(result)
        types = [
            None if at is None else values[at].dtype if isinstance(values[at], Tensor) else half
            for at in of
        ]
        return [
            each.to(to) if isinstance(each, Tensor) and to in _HALVES else each
            for each, to in zip(result, types, strict=False)
        ]

    def _after(self, error: RuntimeError, values: list[Any], keywords: dict[str, Any]) -> Any:
        """Retry in fp32 if the CPU has no kernel for halves; else raise as a GPU would."""
        if is_out_of_memory(error):
            raise out_of_memory(error) from None
        if self._rounded is None and any(text in str(error) for text in _NOT_FOR_HALVES):
            return self._in_fp32(values, keywords)
        raise error

    def _given_back(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        values: list[Any],
        keywords: dict[str, Any],
    ) -> Any:
        """Return the written arguments themselves, and new results as CUDA tensors."""
        if self._is_in_place and args[0].shape == values[0].shape:
            return args[0]
        for at in self._written:
            own = _argument(self._names, at, args, kwargs)
            of_cpu = _argument(self._names, at, values, keywords)
            if isinstance(own, Tensor) and own.is_cuda and of_cpu.shape != own.shape:
                replace(own, of_cpu)
            elif isinstance(own, Tensor) and not own.numel() and of_cpu.numel():
                replace(own, of_cpu)
        if len(self._gives_back) == 1 and self._gives_back[0] is not None:
            return _argument(self._names, self._gives_back[0], args, kwargs)
        if not isinstance(result, (list, tuple)):
            return _placed(result)
        return tuple(
            _placed(each) if at is None else _argument(self._names, at, args, kwargs)
            for at, each in zip(self._gives_back, result, strict=True)
        )


def _two_devices(op: Any, args: Sequence[Any]) -> str:
    """Return what torch's operators on a GPU say of tensors on two devices."""
    names = [argument.name for argument in op._schema.arguments]
    given = list(zip(names, args, strict=False))
    tensors = [(name, each) for name, each in given if isinstance(each, Tensor)]
    others = [(name, each) for name, each in tensors if each.device != tensors[0][1].device]
    if torch.Tag.pointwise in op.tags or not others:
        return f"{_SAME_DEVICE}, but found at least two devices, cuda:0 and cpu!"
    (name, other), common = others[0], tensors[0][1].device
    base, overload = op._schema.name.partition("::")[2], op._schema.overload_name
    is_structured = torch._C._dispatch_has_kernel_for_dispatch_key(
        op.name(), "CompositeExplicitAutogradNonFunctional"
    )
    of_structured = (base, *([overload] if overload else []))
    method = "_".join(("wrapper_CUDA", *(of_structured if is_structured else (overload, base))))
    if _NAMES_ARGUMENT_FIRST:
        return (
            f"{_SAME_DEVICE}, but got {name} is on {other.device}, different from other tensors on "
            f"{common} (when checking argument in method {method})"
        )
    return (
        f"{_SAME_DEVICE}, but found at least two devices, {common} and {other.device}! (when "
        f"checking argument for argument {name} in method {method})"
    )


def _argument(names: tuple[str, ...], at: int, values: Any, keywords: dict[str, Any]) -> Any:
    return values[at] if at < len(values) else keywords.get(names[at])


def _types(values: Iterable[Any]) -> set[torch.dtype]:
    return {each.dtype for each in tensors_in(values) if each.is_floating_point()}


def _store(before: Any, after: Any) -> None:
    """Copy results of wide copies to the original tensors, which are resized if need be."""
    for one, other in zip(tensors_in([before]), tensors_in([after]), strict=True):
        if one.shape != other.shape:
            one.resize_(other.shape)
        one.copy_(other)


def _placed(result: Any) -> Any:
    if isinstance(result, Tensor):
        return place(result) if result.is_cpu else result
    if isinstance(result, (list, tuple)):
        return [_placed(each) for each in result]
    return result
