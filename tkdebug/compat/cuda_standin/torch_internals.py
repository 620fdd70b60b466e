# ruff: noqa: SLF001 (this module is the one place for what torch does not offer)
"""Parts of torch that are no API: tensors, a guard, hooks and generators of CUDA.

A tensor with the CUDA key over host memory comes from DLPack, with the device in the capsule
changed. torch's C++ code asks objects for CUDA's guard (which device is current, which stream) and
CUDA's hooks (how many devices, an allocator of pinned memory). Both get a table of functions put
together from the functions of the CPU's guard: no callback, no machine code. The place of each
function in the tables is read from the headers that torch is shipped with.

`self_test` uses all of it; `support` runs that in a child process, once for each installed torch.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey, DispatchKeySet

CPU = torch.device("cpu")
CUDA = torch.device("cuda", 0)
CPU_KEYS = DispatchKeySet(DispatchKey.CPU)

# c10/core/DeviceType.h
_CPU_TYPE, _CUDA_TYPE = 0, 1
# dlpack.h: the device of a tensor follows its data pointer.
_DL_CPU, _DL_CUDA, _DL_DEVICE_OFFSET = 1, 2, 8
_POINTER_BYTES = ctypes.sizeof(ctypes.c_void_p)
# The words before the functions of a vtable: the offset to the object's top, and its type
# (Itanium C++ ABI, 2.5.2).
_TABLE_HEAD = 2
_HEAD_BYTES = _TABLE_HEAD * _POINTER_BYTES
_VIRTUAL = re.compile(r"\bvirtual\s[^;{(=]*?(~?\w+)\s*\(")
_UNBUILT = re.compile(r"//[^\n]*|^#ifdef USE_ROCM$.*?^#endif", re.MULTILINE | re.DOTALL)
_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"
_GET_HOOKS = "_ZN2at6detail12getCUDAHooksEv"
_NO_HOOKS = "_ZTVN2at18CUDAHooksInterfaceE"
_ATTENTION = "_ZN2at6native22_fused_sdp_choice_stubE"
_TIMERS = "_ZN4c10d13TimerRegistryEv"
_MOST_TIMERS = 8
_GET_ALLOCATOR = "_ZN3c1012GetAllocatorERKNS_10DeviceTypeE"
# A generator has its device in the word before its keys, which are within so many bytes.
_GENERATOR_BYTES = 256
_CPU_DEVICE = b"\x00\xff"
_CUDA_DEVICE = b"\x01\x00"
_STORAGE_WORDS = 24
# A storage's address and size are among its first words; c10/core/StorageImpl.h.
_MEMORY_WORDS = 8
# A number of bytes that no other word of a storage has.
_PROBE_BYTES = 0x1F2E3D
# Functions of the CPU's guard, which implement functions of the vtables. `deviceCount` gives 1,
# which is also True, the device type CUDA, the device cuda:0, and a stream of it; `type` gives 0.
_GUARD = {
    "deviceCount": (
        "type exchangeDevice getDevice getStream getDefaultStream getStreamFromGlobalPool "
        "getNewStream exchangeStream queryEvent queryStream"
    ),
    "setDevice": (
        "destroyEvent record block synchronizeStream synchronizeEvent synchronizeDevice "
        "recordDataPtrOnStream"
    ),
    "type": "isStreamCapturing",
}
_HOOKS = {
    "deviceCount": (
        "isBuilt isAvailable hasPrimaryContext deviceCount getDeviceFromPtr hasCUDA getNumGPUs"
    ),
    "setDevice": "init setCurrentDevice deviceSynchronize",
    "type": (
        "getCurrentDevice exchangeDevice maybeExchangeDevice current_device isPinnedPtr "
        "versionCuDNN versionRuntimeCuDNN versionCuDNNFrontend versionCUDART "
        "cuFFTGetPlanCacheMaxSize cuFFTGetPlanCacheSize"
    ),
}

_pointer_of: Any = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_to_dlpack: Any = getattr(torch._C, "_to_dlpack", None)
_from_dlpack: Any = getattr(torch._C, "_from_dlpack", None)
# Type and index, as one number on a little-endian machine.
_device_at = ctypes.c_int64.from_address
# Objects that torch's C++ code may hold for as long as the process lives.
_kept: list[object] = []


class UnknownTorchError(Exception):
    """This torch is not built like the known ones."""


def names(namespace: str) -> list[str]:
    """Return the names of a namespace's operators, such as `add.Tensor`."""
    return _of_namespace(torch._C._dispatch_get_all_op_names(), namespace)


def names_with_kernel(namespace: str, key: str) -> list[str]:
    """Return the names of the operators that have a kernel for a dispatch key.

    Asking for each operator by itself takes fifty times as long: half of the installation's time.
    """
    found = torch._C._dispatch_get_registrations_for_dispatch_key(key)
    return _of_namespace(found, namespace)


def _of_namespace(full_names: Sequence[str], namespace: str) -> list[str]:
    start = f"{namespace}::"
    return [name[len(start) :] for name in full_names if name.startswith(start)]


def with_device(tensor: Tensor, is_cuda: bool) -> Tensor:
    """Return a tensor over the same memory on cuda:0 or on the CPU, whose storage cannot grow."""
    capsule = _to_dlpack(tensor)
    _device_at(_pointer_of(capsule, b"dltensor") + _DL_DEVICE_OFFSET).value = (
        _DL_CUDA if is_cuda else _DL_CPU
    )
    return _from_dlpack(capsule)  # type: ignore[no-any-return]


def put_in_place(default_generator: torch.Generator) -> Callable[[], None]:
    """Give torch's C++ code a CUDA device, in host memory; return a function that removes it.

    Raises:
        UnknownTorchError: this torch is not like the known ones.
    """
    try:
        slots = (ctypes.c_void_p * (_CUDA_TYPE + 1)).in_dll(_library("c10"), _REGISTRY)
        of_torch = _library("torch_cpu")
        hooks = ctypes.c_void_p.from_address(_called(of_torch, _GET_HOOKS))
        no_hooks = ctypes.c_char.in_dll(of_torch, _NO_HOOKS)
        attention = ctypes.c_char.in_dll(of_torch, _ATTENTION)
    except (OSError, ValueError, AttributeError) as error:
        raise UnknownTorchError(str(error)) from None
    of_cpu = ctypes.c_void_p.from_address(slots[_CPU_TYPE] or 0).value or 0
    table = _Table(of_cpu, _indices("c10/core/impl/DeviceGuardImplInterface.h"))
    guard = ctypes.c_void_p(table.changed(_done_by(table, _GUARD)))
    _kept.append(guard)
    # The one of a build for CUDA asks the driver; this one is the same in all builds.
    hook_table = _Table(ctypes.addressof(no_hooks) + _HEAD_BYTES, _hook_indices())
    pointers = {
        "getPinnedMemoryAllocator": pinned_allocator(),
        "getDefaultGenerator": _held_generator(default_generator),
    }
    changed = hook_table.changed(_done_by(table, _HOOKS) | _pointers_given(pointers))
    # Functions by device type, the CPU's first; a CUDA build's own function asks the driver.
    choice = ctypes.c_void_p.from_address(ctypes.addressof(attention) + _POINTER_BYTES)
    before = slots[_CUDA_TYPE], hooks.value, choice.value
    slots[_CUDA_TYPE], hooks.value, choice.value = ctypes.addressof(guard), changed, None

    def undo() -> None:
        slots[_CUDA_TYPE], hooks.value, choice.value = before

    return undo


def _done_by(guard: _Table, functions: Mapping[str, str]) -> dict[str, int]:
    """Return the address of the guard's function for each name that it implements."""
    return {name: guard.function(by) for by, names in functions.items() for name in names.split()}


class _Table:
    """The functions of a C++ class, by name."""

    def __init__(self, address: int, indices: Mapping[str, int]) -> None:
        self._address = address
        self._indices = indices

    def function(self, name: str) -> int:
        """Return the address of a function.

        Raises:
            UnknownTorchError: there is no function of that name.
        """
        if name not in self._indices:
            raise UnknownTorchError(f"its headers declare no {name}")
        place = self._address + _POINTER_BYTES * self._indices[name]
        return ctypes.c_void_p.from_address(place).value or 0

    def changed(self, functions: Mapping[str, int]) -> int:
        """Return the address of a copy with other functions, as far as this torch has them."""
        count = max(self._indices.values()) + 1
        own = (ctypes.c_void_p * (count + _TABLE_HEAD))()
        ctypes.memmove(own, self._address - _HEAD_BYTES, ctypes.sizeof(own))
        for name, function in functions.items():
            if name in self._indices:
                own[_TABLE_HEAD + self._indices[name]] = function
        _kept.append(own)
        return ctypes.addressof(own) + _HEAD_BYTES


def _indices(header: str, first: int = 0) -> dict[str, int]:
    """Return the places of a class's functions in its table, from the header that declares it."""
    path = Path(torch.__file__).parent / "include" / header
    try:
        text = _UNBUILT.sub("", path.read_text(encoding="utf-8"))
    except OSError:
        raise UnknownTorchError(f"its header {header} is not installed") from None
    found: dict[str, int] = {}
    place = first
    for name in _VIRTUAL.findall(text):
        found.setdefault(name, place)
        # A destructor has two functions: with and without freeing the memory.
        place += 2 if name.startswith("~") else 1
    return found


def _hook_indices() -> dict[str, int]:
    every_device = _indices("ATen/detail/AcceleratorHooksInterface.h")
    return every_device | _indices(
        "ATen/detail/CUDAHooksInterface.h", max(every_device.values()) + 1
    )


def _library(name: str) -> ctypes.CDLL:
    folder = Path(torch.__file__).parent / "lib"
    for file in (f"lib{name}.so", f"lib{name}.dylib", f"{name}.dll"):
        if (folder / file).is_file():
            return ctypes.CDLL(str(folder / file))
    raise UnknownTorchError(f"it has no library {name}")


def _called(library: ctypes.CDLL, name: str, *arguments: Any) -> int:
    function = getattr(library, name)
    function.restype = ctypes.c_void_p
    return function(*arguments) or 0


def _pointers_given(pointers: Mapping[str, int]) -> dict[str, int]:
    """Return functions that return pointers, whatever their arguments."""
    kind = ctypes.CFUNCTYPE(ctypes.c_void_p)
    made = {}
    for name, pointer in pointers.items():
        function = kind(lambda pointer=pointer: pointer)
        _kept.append(function)
        made[name] = ctypes.cast(function, ctypes.c_void_p).value or 0
    return made


_pinned: list[int] = []


def pinned_allocator() -> int:
    """Return the address of a copy of the CPU's allocator, which torch takes for another one."""
    if not _pinned:
        kind = ctypes.c_int8(_CPU_TYPE)
        of_cpu = _called(_library("c10"), _GET_ALLOCATOR, ctypes.byref(kind))
        # A table, and what members it has; none is changed.
        own = (ctypes.c_void_p * 4)()
        ctypes.memmove(own, of_cpu, _POINTER_BYTES)
        _kept.append(own)
        _pinned.append(ctypes.addressof(own))
    return _pinned[0]


def is_pinned(storage: torch.UntypedStorage) -> bool:
    """Whether memory was given out by the allocator of pinned memory."""
    return pinned_allocator() in list(_words(storage))


def move_memory(storage: torch.UntypedStorage, address: int, size_bytes: int) -> None:
    """Set the address and the size of the memory of a storage that came from DLPack.

    Its old memory is freed with the storage.

    Raises:
        UnknownTorchError: the place where it keeps its address and size was not found.
    """
    if not _places:
        probe = with_device(torch.empty(_PROBE_BYTES, dtype=torch.uint8), is_cuda=True)
        words = list(_words(probe.untyped_storage()))[:_MEMORY_WORDS]
        wanted = probe.data_ptr(), _PROBE_BYTES
        if any(words.count(each) != 1 for each in wanted):
            raise UnknownTorchError("a storage keeps its address or size elsewhere")
        _places.extend(map(words.index, wanted))
    words_of_storage = _words(storage)
    for place, word in zip(_places, (address, size_bytes), strict=True):
        words_of_storage[place] = word


# Where storages keep their address and size, as numbers of words.
_places: list[int] = []


def _words(storage: torch.UntypedStorage) -> Any:
    return (ctypes.c_uint64 * _STORAGE_WORDS).from_address(storage._cdata)


def _held_generator(generator: torch.Generator) -> int:
    """Return the address of a pointer to a generator; both are kept alive."""
    held = ctypes.c_void_p(address_of(generator))
    _kept.extend((held, generator))
    return ctypes.addressof(held)


def share_timers() -> Callable[[], None]:
    """Have gradient reducers time CUDA's work as the CPU's; return a function that undoes it.

    A build for CUDA asks the driver for its events. The registry of timers is an `unordered_map`
    from device types to functions, in which the function's 32 bytes are replaced; a build without
    CUDA has none to replace.
    """
    find = getattr(_library("torch_cpu"), _TIMERS, None)
    if find is None or sys.platform != "linux":
        return lambda: None
    words = (ctypes.c_uint64 * 4).from_address(_called(_library("torch_cpu"), _TIMERS))
    node, count = words[2], words[3]
    makers: dict[int, Any] = {}
    for _ in range(min(count, _MOST_TIMERS)):
        following, kind, *_maker = (ctypes.c_uint64 * 6).from_address(node)
        makers[kind & 0xFF] = (ctypes.c_uint64 * 4).from_address(node + 2 * _POINTER_BYTES)
        node = following
    if {_CPU_TYPE, _CUDA_TYPE} - makers.keys():
        return lambda: None
    of_cuda = makers[_CUDA_TYPE]
    before = list(of_cuda)
    of_cuda[:] = list(makers[_CPU_TYPE])

    def undo() -> None:
        of_cuda[:] = before

    return undo


def address_of(generator: Any) -> int:
    """Return the address of the C++ object of a generator."""
    return int(generator._cdata)


def give_cuda_device(generator: torch.Generator) -> None:
    """Have a CPU generator say, in C++ as in Python, that it is of cuda:0.

    Raises:
        UnknownTorchError: the place where it keeps its device was not found.
    """
    keys = CPU_KEYS.raw_repr().to_bytes(8, "little")
    memory = (ctypes.c_char * _GENERATOR_BYTES).from_address(address_of(generator))
    place = memory.raw.find(keys) - len(keys)
    if place < 0 or memory.raw[place : place + len(_CPU_DEVICE)] != _CPU_DEVICE:
        raise UnknownTorchError("a generator has no device where it is looked for")
    ctypes.memmove(ctypes.addressof(memory) + place, _CUDA_DEVICE, len(_CUDA_DEVICE))
    if generator.device != CUDA:
        raise UnknownTorchError("a generator keeps its device elsewhere")


def self_test() -> None:
    """Use everything in this module; the process may crash where torch is not as known."""
    generator = torch.Generator()
    give_cuda_device(generator)
    torch.cuda._lazy_init = lambda: None
    undo = put_in_place(generator)
    library: Any = torch._C._dispatch_library("IMPL", "aten", "CUDA", __file__, 0)

    def add(one: Tensor, other: Tensor, alpha: int = 1) -> Tensor:
        of_cpu = [with_device(each, is_cuda=False) for each in (one, other)]
        return with_device(torch.ops.aten.add.Tensor.redispatch(CPU_KEYS, *of_cpu), is_cuda=True)

    library.impl("add.Tensor", "CUDA", add, False)
    x = with_device(torch.ones(4), is_cuda=True).requires_grad_()
    y = x + x
    moved, memory = with_device(torch.zeros(4), is_cuda=True), torch.ones(8)
    move_memory(moved.untyped_storage(), memory.data_ptr(), 4 * 8)
    problems = {
        "memory that moved": (moved.data_ptr(), moved.untyped_storage().nbytes())
        != (memory.data_ptr(), 4 * 8),
        "a tensor": not (y.is_cuda and y.device == CUDA),
        "its values": with_device(y.detach(), is_cuda=False).tolist() != [2.0] * 4,
        "its gradient": y.grad_fn is None,
        "the device by number": torch.device(0) != CUDA,
        "pinned memory": not is_pinned(torch.empty(4, pin_memory=True).untyped_storage()),
        "other memory": is_pinned(torch.empty(4).untyped_storage()),
    }
    undo()
    wrong = [name for name, is_wrong in problems.items() if is_wrong]
    if wrong:
        raise UnknownTorchError(f"{wrong[0]} is not as expected")
