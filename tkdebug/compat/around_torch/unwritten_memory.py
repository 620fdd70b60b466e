"""Memory that torch leaves unwritten: its marks, and torch's reads of what launches left unwritten.

`torch.empty` and the like return memory with its old contents. While `mark_empties` is in force
each of them fills its result with the mark of its type
(`tkdebug.interpreter.checks.unwritten.patterns`), which kernels' reads are checked for; copies of
unwritten memory are unwritten, too.

`watch_gaps` sees torch read the gaps that launches left in fresh tensors
(`checks.unwritten.gaps`). A view of a tensor reads nothing; a copy, also one of another type,
passes the gaps on, and so does arithmetic: an element computed from a gap is a gap, too. Everything
else that gets a part with a gap reads it, unless its results show that it was dropped. The sets
below say which function does what, by the names that torch gives a `TorchFunctionMode`. Reads of
arrays are seen where numpy compares them; not seen are numpy's arithmetic, C++ extensions and other
threads.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
import torch.overrides
import torch.utils._device
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tkdebug.compat.after_torch import after_import
from tkdebug.compat.replacements import Replacements
from tkdebug.interpreter.checks.unwritten.gaps import HELD_GAPS
from tkdebug.interpreter.checks.unwritten.patterns import (
    MARKS,
    NARROW_PATTERNS,
    TYPES,
    bits_type,
    marked,
    put_marks,
)
from tkdebug.interpreter.memory.host_views import host_view

_settings: Any = torch.utils.deterministic
_FUNCTIONS = ("empty", "empty_like", "empty_strided", "empty_permuted")
_METHODS = ("new_empty", "new_empty_strided")
# Their results have the same elements, elsewhere or as another type.
COPIES = frozenset(
    "clone contiguous cpu cuda to type type_as float half bfloat16 double int long short char byte "
    "reshape flatten ravel pad __getitem__ index_select narrow_copy cat concat concatenate stack "
    "hstack vstack dstack row_stack column_stack detach __deepcopy__ copy_ __setitem__ repeat tile "
    "repeat_interleave expand_as as_tensor asarray tensor flip fliplr flipud roll rot90 gather "
    "take_along_dim block_diag".split()
)
# Put several tensors into one.
JOINS = frozenset(
    "cat concat concatenate stack hstack vstack dstack row_stack column_stack block_diag".split()
)
# Leave elements out by their places; of integers the result does not show which.
CHOOSING = frozenset("where masked_fill masked_select tril triu take index_put".split())
# On floats, they give a NaN where they are given one, and nowhere else because of it.
ELEMENTWISE = frozenset(
    "add iadd radd sub isub rsub subtract mul imul rmul multiply div idiv rdiv divide "
    "true_divide truediv itruediv rtruediv pow ipow rpow neg negative abs absolute square "
    "sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan tanh sigmoid erf "
    "relu gelu silu leaky_relu elu softplus mish hardtanh hardswish hardsigmoid clamp clip "
    "clamp_min clamp_max maximum minimum round floor ceil trunc addcmul addcdiv lerp dropout "
    "where masked_fill".split()
)
# Give one of the elements, bits and all, which is no copy.
EXTREMA = frozenset("max min amax amin aminmax median item tolist".split())
# Ask for facts of a tensor, or make another one like it.
ASKING = frozenset(
    "size stride dim ndimension numel nelement element_size data_ptr storage untyped_storage "
    "storage_offset is_contiguous get_device __len__ __hash__ is_floating_point is_complex "
    "is_signed is_pinned is_same_size is_set_to record_stream register_hook retain_grad "
    "requires_grad_ has_names result_type promote_types can_cast broadcast_shapes is_tensor "
    "__reduce_ex__ __dlpack__ __dlpack_device__ share_memory_ pin_memory "
    "is_shared resize_ set_ zero_ fill_ normal_ uniform_ random_ exponential_ __get__ __set__ "
    "__delete__ broadcast_tensors register_post_accumulate_grad_hook is_inference".split()
)
# Hand the memory to others, who are not seen.
HANDING_OUT = frozenset(("numpy", "__array__"))
_overrides: Any = torch.overrides
# Copies whose elements may be there several times.
_BROADCASTING = ("copy_", "expand_as")


def mark_empties() -> Callable[[], None]:
    """Mark fresh memory from now on; return a function that stops it."""
    replaced = Replacements()
    # torch notes once which functions heed the default device, and knows them by what they are.
    torch.utils._device._device_constructors()  # noqa: SLF001
    for name in _FUNCTIONS:
        replaced.set(torch, name, _marking(getattr(torch, name)))
    for name in _METHODS:
        replaced.set(Tensor, name, _marking(getattr(Tensor, name)))
    return replaced.restore


def _marking(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def marked(*arguments: Any, **keywords: Any) -> Any:
        made = function(*arguments, **keywords)
        # Off inside the interpreter, whose own tiles need no marks.
        if not torch._C._is_torch_function_enabled():  # noqa: SLF001
            return made
        if torch.are_deterministic_algorithms_enabled() and _settings.fill_uninitialized_memory:
            # torch has filled it, with what such programs may count on.
            return made
        if keywords.get("out") is None and isinstance(made, Tensor):
            _mark(made)
        return made

    return marked


def _mark(tensor: Tensor) -> None:
    """Fill a fresh tensor's memory, if it has any and its type has a mark."""
    with torch._C.DisableTorchFunction(), torch.no_grad():  # noqa: SLF001
        mark = MARKS.get(tensor.dtype)
        # Subclasses (fake tensors while torch traces) and other layouts have no memory to fill.
        plain = type(tensor) in (Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
        is_narrow = tensor.dtype in TYPES
        if (mark is None and not is_narrow) or not plain or tensor.is_meta:
            return
        storage = host_view(tensor).untyped_storage()
        if mark is None:
            NARROW_PATTERNS.fill(storage)
            return
        bits = bits_type(tensor.element_size())
        memory = torch.empty(0, dtype=bits, device=storage.device)
        memory.set_(storage, 0, (storage.nbytes() // memory.element_size(),), (1,))
        memory.fill_(mark)


def plain(name: str) -> str:
    """Return `add` for `add_` and `__add__`."""
    return name.strip("_")


class WatchReads(TorchFunctionMode):
    """The mode of torch that sees calls; inactive it passes every call on."""

    def __init__(self) -> None:
        super().__init__()
        self.active = True

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call `func`, and look at its arguments if any launch left gaps."""
        if not (HELD_GAPS and self.active):
            return func(*args, **kwargs) if kwargs else func(*args)
        name = getattr(func, "__name__", "")
        if name in ASKING or name.startswith("new_"):
            return func(*args, **kwargs) if kwargs else func(*args)
        with torch._C.DisableTorchFunction():  # noqa: SLF001
            changed = _marks_to_be_changed(name, args)
        result = func(*args, **kwargs) if kwargs else func(*args)
        if not name.endswith("_like"):
            keywords = {key: value for key, value in (kwargs or {}).items() if key != "out"}
            with torch._C.DisableTorchFunction(), torch.no_grad():  # noqa: SLF001
                call = _Call(func, name, args, keywords, list(_tensors([result])))
                _look(call, changed)
        return result


def watch_gaps() -> Callable[[], None]:
    """Look at this thread's torch functions from now on; return a function that stops it."""
    mode = WatchReads()
    mode.__enter__()  # type: ignore[no-untyped-call]
    forget_comparisons = watch_comparisons()
    replaced = Replacements()
    replaced.set(torch, "save", _saving(torch.save))

    def stop() -> None:
        HELD_GAPS.end()
        # In another thread than its own it stays; inactive it passes every call on.
        mode.active = False
        replaced.restore()
        forget_comparisons()
        _leave(mode)

    return stop


def _leave(mode: TorchFunctionMode) -> None:
    """Take `mode` off this thread's stack, wherever it is there."""
    above = []
    for _ in range(torch._C._len_torch_function_stack()):  # noqa: SLF001
        top = _overrides._pop_mode()  # noqa: SLF001
        if top is mode:
            break
        above.append(top)
    for other in reversed(above):
        _overrides._push_mode(other)  # noqa: SLF001


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a torch function that has returned."""

    func: Callable[..., Any]
    name: str
    args: tuple[Any, ...]
    keywords: dict[str, Any]
    made: list[Tensor]

    @property
    def reader(self) -> str:
        return f"torch's `{self.name.strip('_')}`"

    def given(self) -> list[Tensor]:
        return list(_tensors([*self.args, *self.keywords.values()]))


def _look(call: _Call, changed: Tensor | None) -> None:
    """Follow the gaps of a call's arguments."""
    if changed is not None:
        memory = host_view(call.args[0])
        _computed(call, memory, changed, [memory])
    given, made = call.given(), call.made
    if call.name == "__setitem__":
        given, made = list(_tensors(call.args[-1:])), given[:1]
    storages = {_storage(tensor) for tensor in made}
    for tensor in given:
        # Otherwise it is a view of it, or was written.
        if _storage(tensor) not in storages and HELD_GAPS.has(tensor):
            _follow(call, tensor, made)


def _follow(call: _Call, tensor: Tensor, made: list[Tensor]) -> None:
    """Pass the gaps of a tensor on to the results made of it, or report that they were read."""
    is_float = tensor.dtype.is_floating_point
    if call.name in COPIES:
        for copy in made:
            _copied(call, tensor, copy)
    elif call.name in HANDING_OUT:
        HELD_GAPS.handed_out(tensor)
    elif is_float and plain(call.name) in ELEMENTWISE:
        marks = marked(tensor)
        if marks is not None:
            _computed(call, tensor, marks, made)
    elif plain(call.name) in CHOOSING and not is_float:
        for choice in made:
            HELD_GAPS.copied(tensor, choice)
    else:
        HELD_GAPS.read(tensor, made, call.reader, may_move=plain(call.name) not in EXTREMA)


def _copied(call: _Call, tensor: Tensor, copy: Tensor) -> None:
    # The marks of narrow integers are not copied with them.
    if copy.dtype is not tensor.dtype or tensor.dtype in TYPES:
        places = _places(call, tensor, copy)
        if places is not None:
            put_marks(copy, places)
    HELD_GAPS.copied(tensor, copy)


def _places(call: _Call, tensor: Tensor, copy: Tensor) -> Tensor | None:
    """Return the places of a tensor's gaps in a copy of another type, or None if unknown."""
    marks = marked(tensor)
    if marks is None or not bool(marks.any()):
        return None
    if call.name == "__setitem__":
        places = torch.zeros(copy.shape, dtype=torch.bool)
        places[call.args[1]] = marks
        return places
    if call.name in JOINS and call.args and isinstance(call.args[0], list | tuple):
        parts = [
            marks
            if _storage(part) == _storage(tensor) and part.shape == tensor.shape
            else torch.zeros(part.shape, dtype=torch.bool)
            for part in call.args[0]
        ]
        keywords = {key: call.keywords[key] for key in ("dim", "axis") if key in call.keywords}
        places = call.func(parts, *call.args[1:], **keywords)
        return places if isinstance(places, Tensor) else None
    if call.name in _BROADCASTING:
        return _spread(marks, copy)
    return marks if marks.shape == copy.shape and call.name not in JOINS else None


def _computed(call: _Call, tensor: Tensor, marks: Tensor, made: list[Tensor]) -> None:
    """Mark NaNs that were computed from gaps as gaps; other results count as reads of the gaps."""
    HELD_GAPS.use(tensor)
    for result in made:
        places = _spread(marks, result)
        if places is None or not result.dtype.is_floating_point:
            HELD_GAPS.read(tensor, [result], call.reader)
            continue
        put_marks(result, places & result.isnan())
        HELD_GAPS.copied(tensor, result, call.reader)


def _spread(marks: Tensor, result: Tensor) -> Tensor | None:
    """Return marks broadcast to the shape of a result, or None if they do not fit."""
    shape = tuple(marks.shape)
    if len(shape) > result.dim():
        return None
    pairs = zip(reversed(shape), reversed(result.shape), strict=False)
    if any(size not in (1, wanted) for size, wanted in pairs):
        return None
    return marks.broadcast_to(result.shape)


def _marks_to_be_changed(name: str, args: tuple[Any, ...]) -> Tensor | None:
    """Return the gaps of the tensor that an elementwise function changes in place, or None."""
    is_in_place = name.endswith("_") and (name[:3] == "__i" or name[:2] != "__")
    if not (is_in_place and args and plain(name) in ELEMENTWISE and isinstance(args[0], Tensor)):
        return None
    memory = host_view(args[0])
    if not memory.dtype.is_floating_point or not HELD_GAPS.has(memory):
        return None
    return marked(memory)


def _saving(save: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(save)
    def saving(obj: object, *args: Any, **keywords: Any) -> None:
        if HELD_GAPS:
            with torch._C.DisableTorchFunction():  # noqa: SLF001
                for tensor in _tensors([obj]):
                    HELD_GAPS.saved(tensor)
        save(obj, *args, **keywords)

    return saving


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            if _has_memory(value):
                yield host_view(value)
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
        elif type(value) is dict:
            yield from _tensors(value.values())


def _has_memory(tensor: Tensor) -> bool:
    """Whether a tensor has memory of its own, unlike wrapped, fake, meta and sparse tensors."""
    if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.is_meta:
        return False
    is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # noqa: SLF001
    return tensor.layout == torch.strided and not is_wrapped


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


# Functions that scripts compare results with: all of an array is read there.
OF_NUMPY = ("allclose", "isclose", "array_equal", "array_equiv")
OF_TESTING = (
    "assert_allclose",
    "assert_almost_equal",
    "assert_array_almost_equal",
    "assert_array_almost_equal_nulp",
    "assert_array_equal",
    "assert_array_less",
    "assert_array_max_ulp",
    "assert_equal",
)


def watch_comparisons() -> Callable[[], None]:
    """Look at numpy's comparisons from now on; return a function that stops it."""
    try:
        # Not needed by torch, and imported with it where it is there.
        import numpy
    except ImportError:
        return lambda: None
    replaced = Replacements()
    _replace(replaced, numpy, OF_NUMPY)

    def with_testing() -> None:
        _replace(replaced, sys.modules["numpy.testing"], OF_TESTING)

    # Few scripts import it.
    replaced.on_restore(after_import("numpy.testing", with_testing))
    return replaced.restore


def _replace(replaced: Replacements, owner: ModuleType, names: Sequence[str]) -> None:
    for name in names:
        if hasattr(owner, name):
            replaced.set(owner, name, _looking(getattr(owner, name), name))


def _looking(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def looking(*args: Any, **keywords: Any) -> Any:
        if HELD_GAPS:
            for array in _arrays([*args[:2], *keywords.values()]):
                _look_at_array(array, f"numpy's `{name}`")
        return function(*args, **keywords)

    return looking


def _look_at_array(array: Any, reader: str) -> None:
    gaps = HELD_GAPS.at(int(array.__array_interface__["data"][0]))
    if not gaps or array.dtype.kind not in "fi":
        return
    with torch._C.DisableTorchFunction():  # noqa: SLF001
        # Narrow integers show by their memory what was not written, others in a copy, too.
        is_tensor_s = array.itemsize <= 2 and array.flags.c_contiguous and array.flags.writeable
        HELD_GAPS.read_of(gaps, torch.from_numpy(array if is_tensor_s else array.copy()), reader)


def _arrays(values: list[Any]) -> Iterator[Any]:
    import numpy

    return (value for value in values if type(value) is numpy.ndarray)
