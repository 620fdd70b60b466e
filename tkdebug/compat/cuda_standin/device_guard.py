# ruff: noqa: SLF001 (torch offers what a stand-in must change only under private names)
"""What torch's C++ code needs of a CUDA device: a guard, and memory.

A CPU build of torch has neither, and ends what asks for them: reading a fake CUDA tensor's strides,
`torch.full(…, device="cuda")` below the function mode. The guard becomes the CPU's, which does
nothing; memory is the CPU's, with a mark.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tkdebug.compat.cuda_standin import placement

# c10/core/DeviceType.h and c10/core/impl/DeviceGuardImplInterface.h.
_CPU, _CUDA = 0, 1
# Of the table's functions, and a device as the two bytes of its type and its index.
_EXCHANGE, _GET, _FUNCTIONS = 1, 2, 24
_CUDA_0, _NO_CPU = 0x0001, -0x100
_GET_DEVICE = ctypes.CFUNCTYPE(ctypes.c_int16, ctypes.c_void_p)
_EXCHANGE_DEVICE = ctypes.CFUNCTYPE(ctypes.c_int16, ctypes.c_void_p, ctypes.c_int16)
_kept: list[_Guard] = []
_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"
_LIBRARIES = ("libc10.so", "libc10.dylib", "c10.dll")


def stand_in_for_devices() -> Callable[[], None] | None:
    """Give CUDA a guard and memory; a function that takes them away, None where torch has no slot.

    A build with CUDA has its own guard, which asks a driver that is not there; it comes back.
    """
    slots = _guard_slots()
    if slots is None:
        return None
    guard = _Guard(slots[_CPU])
    if not guard.is_as_known:
        return None
    before, slots[_CUDA] = slots[_CUDA], guard.address
    # Below `torch.library`, where the kernels of scripts for CUDA are noted.
    library: Any = torch._C._dispatch_library("IMPL", "aten", "CUDA", __file__, 0)
    with warnings.catch_warnings():
        # A build with CUDA has these already, and warns of each that is replaced.
        warnings.simplefilter("ignore", UserWarning)
        library.impl("empty.memory_format", "CUDA", _empty, False)
        library.impl("empty_strided", "CUDA", _empty_strided, False)

    def undo() -> None:
        guard.keep()
        library.reset()
        slots[_CUDA] = before

    return undo


class _Guard:
    """The CPU's guard with two methods of its own: the current device is cuda:0.

    An object of C++ without members: a pointer to a table of functions (Itanium C++ ABI, 2.5.2).
    """

    def __init__(self, cpu: int) -> None:
        table = ctypes.c_void_p.from_address(cpu).value or 0
        functions = (ctypes.c_void_p * _FUNCTIONS).from_address(table)
        # What comes before the functions: the offset to the object's top, and its type.
        own = (ctypes.c_void_p * (_FUNCTIONS + 2))()
        ctypes.memmove(own, table - 16, ctypes.sizeof(own))
        self._device_of_cpu = _GET_DEVICE(functions[_GET] or 0)(cpu)
        self._get = _GET_DEVICE(lambda guard: _CUDA_0)
        self._exchange = _EXCHANGE_DEVICE(lambda guard, device: _CUDA_0)
        own[2 + _GET] = ctypes.cast(self._get, ctypes.c_void_p)
        own[2 + _EXCHANGE] = ctypes.cast(self._exchange, ctypes.c_void_p)
        self._table = own
        self._object = ctypes.c_void_p(ctypes.addressof(own) + 16)

    @property
    def is_as_known(self) -> bool:
        """Whether the CPU's guard answers as it does in the versions of torch that are known."""
        return bool(self._device_of_cpu == _NO_CPU)

    @property
    def address(self) -> int:
        """Of the object."""
        return ctypes.addressof(self._object)

    def keep(self) -> None:
        """Outlive whatever may still hold the guard."""
        _kept.append(self)


def _guard_slots() -> Any:
    folder = Path(torch.__file__).parent / "lib"
    for name in _LIBRARIES:
        if (folder / name).is_file():
            try:
                library = ctypes.CDLL(str(folder / name))
                return (ctypes.c_void_p * (_CUDA + 1)).in_dll(library, _REGISTRY)
            except (OSError, ValueError):
                return None
    return None


def _empty(
    size: Any,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    memory_format: Any = None,
) -> Tensor:
    form = torch.contiguous_format if memory_format is None else memory_format
    made = torch.empty(size, dtype=dtype, device=placement.CPU, memory_format=form)
    return placement.place(made)


def _empty_strided(
    size: Any,
    stride: Any,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
) -> Tensor:
    return placement.place(torch.empty_strided(size, stride, dtype=dtype, device=placement.CPU))
