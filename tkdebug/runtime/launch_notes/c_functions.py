"""Addresses of what the machine code of notes calls: Python's C API, the system, torch.

Responsible for whether all of it is there and objects lie in memory as the code takes for granted.
Sources: Python/C API reference; `torch/csrc/inductor/aoti_torch/c/shim.h`, torch's stable C
functions, whose handle of a tensor is the address of an `at::Tensor`; `THPVariable` in
`torch/csrc/autograd/python_variable.h`, which has one.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tkdebug.runtime.executable_memory import may_run_what_it_writes

# Of `PyObject`: a count of references, then the type.
TYPE_AT = 8
_POINTER_BYTES = ctypes.sizeof(ctypes.c_void_p)
_OF_PYTHON = (
    "PyByteArray_AsString",
    "PyBytes_FromStringAndSize",
    "PyErr_Clear",
    "PyErr_ExceptionMatches",
    "PyErr_Occurred",
    "PyFloat_AsDouble",
    "PyIter_Next",
    "PyLong_AsLongLong",
    "PyLong_AsUnsignedLongLong",
    "PyLong_FromLongLong",
    "PyObject_GetAttr",
    "PyObject_VectorcallDict",
    "PyThread_get_thread_native_id",
    "PyTuple_GetItem",
    "Py_DecRef",
    "Py_IncRef",
)
_OF_SYSTEM = ("clock_gettime", "pthread_getspecific", "pthread_setspecific")
_OF_TORCH = ("aoti_torch_get_dim", "aoti_torch_get_sizes", "aoti_torch_get_strides")
# Behind the head of a `THPVariable`, in the versions that there were.
_HANDLES_AT = (16, 24)


class CFunctions(NamedTuple):
    """What is there.

    Attributes:
        addresses: by name.
        handle_at: where in a tensor's object its `at::Tensor` is.
        library: torch's, kept alive.
    """

    addresses: dict[str, int]
    handle_at: int
    library: Any


@cache
def c_functions() -> CFunctions | None:
    """The addresses; None where something is not there, or not as it is taken for granted."""
    if sys.platform != "linux" or sys.byteorder != "little" or _POINTER_BYTES != 8:
        return None
    if not may_run_what_it_writes():
        return None
    import torch

    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    system = ctypes.CDLL(None)
    try:
        library = ctypes.CDLL(os.fspath(path))
        addresses = {
            **{name: _address(ctypes.pythonapi, name) for name in _OF_PYTHON},
            **{name: _address(system, name) for name in _OF_SYSTEM},
            **{name: _address(library, name) for name in _OF_TORCH},
        }
    except (OSError, AttributeError):
        return None
    handle_at = _handle_at([torch.empty(3), torch.empty(2, 5), torch.nn.Parameter(torch.empty(4))])
    if handle_at is None or not all(_has_type_there(one) for one in (1, 1.0, torch.empty(0))):
        return None
    return CFunctions(addresses, handle_at, library)


def _address(library: ctypes.CDLL, name: str) -> int:
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address is not None
    return address


def _word_at(thing: object, at: int) -> int:
    return ctypes.c_uint64.from_address(id(thing) + at).value


def _has_type_there(thing: object) -> bool:
    return _word_at(thing, TYPE_AT) == id(type(thing))


def _handle_at(tensors: list[Any]) -> int | None:
    """Where all of these have the pointer that torch says is the tensor."""
    for at in _HANDLES_AT:
        if all(_word_at(one, at) == one._cdata for one in tensors):  # noqa: SLF001
            return at
    return None
