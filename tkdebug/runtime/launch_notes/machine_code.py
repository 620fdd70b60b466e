"""The machine code that notes a launch: a builtin function of Python's, made by LLVM.

The same steps take a Python function several times as long. Responsible for the code alone, which
is one for all kernels: what differs from kernel to kernel lies in a state (`StateWords`). Every
address in it is a constant of this process, so nothing is looked up by name.

Invariants: it holds the GIL throughout and runs no Python code between taking a number and filling
the slot of that number, so that no exception of a signal handler comes between; a slot's number is
stored last; what it does not know how to note it leaves to a Python function with the same
arguments.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from tkdebug.launch_packing import SlotPlaces
from tkdebug.runtime.launch_notes.argument_code import ARGUMENTS, CONVERT
from tkdebug.runtime.launch_notes.c_functions import TYPE_AT, CFunctions, c_functions
from tkdebug.runtime.launch_notes.note_code import NOTE, PARTS
from tkdebug.scopes import SCOPES

# What a parameter is, in the state.
KINDS = ("fixed", "tensor", "int", "uint", "float")
# Axes of a tensor that is known, and its words: number of axes, sizes, strides.
MAX_DIMS = 8
TENSOR_WORDS = 1 + 2 * MAX_DIMS
WORD_BYTES = 8
# Arguments of a note before those of the kernel.
BEFORE_VALUES = 6
_METH_FASTCALL = 0x80
_IS_PLAIN = "is_plain"
_CONVERSIONS = (
    ("signed", int, "i64", "PyLong_AsLongLong"),
    ("unsigned", int, "i64", "PyLong_AsUnsignedLongLong"),
    ("float", float, "double", "PyFloat_AsDouble"),
)
_HEADS = (
    ("launch", "signed"),
    ("x", "word"),
    ("y", "word"),
    ("z", "word"),
    ("stream", "unsigned"),
    ("start_ns", "signed"),
)
assert len(_HEADS) == BEFORE_VALUES


class StateWords(NamedTuple):
    """The words that a state begins with; the kinds of parameters follow, a byte each.

    Attributes:
        arguments: how many a note has; -1 once all are left to Python.
        ring: address of the slots' memory.
        flags: address of the byte that is the flags of launches made now.
        variant: of the kernel's launches.
        parameters: of the kernel.
        tensors: among them.
        sets: how many sets of tensors are known.
        set_bytes: of each.
        sets_at: where in the state the first one is: the number of its facts, then its tensors.
        thread_key: by which each thread keeps its id.
    """

    arguments: int
    ring: int
    flags: int
    variant: int
    parameters: int
    tensors: int
    sets: int
    set_bytes: int
    sets_at: int
    thread_key: int


class NoteSelf(NamedTuple):
    """What the function has as its `self`, a tuple.

    Attributes:
        state: of the kernel.
        instead: called with the same arguments where the code does not know how.
        late: called with a number and the bytes of its slot where that is not free yet.
        numbers: iterator of the slots' numbers.
        scopes_now: gives the number of the scopes where there are any.
        kept: whatever has to live as long.
    """

    state: bytearray
    instead: Callable[..., None]
    late: Callable[[int, bytes], None]
    numbers: object
    scopes_now: Callable[[], int]
    kept: object


KINDS_AT = WORD_BYTES * len(StateWords._fields)


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


@cache
def note_maker(places: SlotPlaces) -> Callable[[NoteSelf], Callable[..., None]] | None:
    """What makes functions that note launches in slots of that form.

    None where there can be no such code.
    """
    functions = c_functions()
    if functions is None:
        return None
    # LLVM takes a tenth of a second, which only processes that use a GPU pay.
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
    module = llvm.parse_assembly(_text(places, functions))
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    method = _Method(b"note", engine.get_function_address("note"), _METH_FASTCALL, None)
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
        ("PyCFunction_NewEx", ctypes.pythonapi)
    )

    def make(own: NoteSelf) -> Callable[..., None]:
        note: Callable[..., None] = new(ctypes.addressof(method), tuple(own), None)
        return note

    _keep_forever(engine, method, functions, *_objects().values())
    return make


def _keep_forever(*things: object) -> None:
    """Functions that were made may be called as long as there is an interpreter."""
    for thing in things:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _text(places: SlotPlaces, functions: CFunctions) -> str:
    names = _names(places, functions)
    conversions = "".join(
        CONVERT.format(
            name=name,
            type=_pointer(id(kind)),
            result=result,
            is_minus_one="fcmp oeq" if kind is float else "icmp eq",
            fraction=".0" if kind is float else "",
            function=names[function],
            **{name: names[name] for name in ("type_at", "PyErr_Occurred", "PyErr_Clear")},
        )
        for name, kind, result, function in _CONVERSIONS
    )
    note = NOTE.format(heads=_heads(places), copies=_copies(places), **names)
    return conversions + ARGUMENTS.format(**names) + PARTS.format(**names) + note


def _objects() -> dict[str, object]:
    """The objects of Python that the code knows by their addresses."""
    import torch

    return {
        "Tensor": torch.Tensor,
        "Parameter": torch.nn.Parameter,
        "SCOPES": SCOPES,
        "is_plain_name": _IS_PLAIN,
        "True": True,
        "None": None,
        "Exception": Exception,
    }


def _names(places: SlotPlaces, functions: CFunctions) -> dict[str, object]:
    """What stands for the names in the texts."""
    addresses = {**functions.addresses, **{name: id(thing) for name, thing in _objects().items()}}
    return {
        **{name: _pointer(address) for name, address in addresses.items()},
        **{f"self_{name}": at for at, name in enumerate(NoteSelf._fields)},
        **{f"state_{name}": WORD_BYTES * at for at, name in enumerate(StateWords._fields)},
        **{f"kind_{name}": number for number, name in enumerate(KINDS)},
        **places._asdict(),
        "type_at": TYPE_AT,
        "handle_at": functions.handle_at,
        "strides_word": 1 + MAX_DIMS,
        "tensor_words": TENSOR_WORDS,
        "kinds_at": KINDS_AT,
        "before_values": BEFORE_VALUES,
        "slot_words": places.size_bytes // WORD_BYTES,
        "mask": places.slots - 1,
    }


def _pointer(address: int) -> str:
    return f"inttoptr (i64 {address} to ptr)"


def _heads(places: SlotPlaces) -> str:
    """Statements that convert the arguments before those of the kernel."""
    lines = []
    before = "true"
    for at, (name, conversion) in enumerate(_HEADS):
        lines += [
            f"%in_{name} = getelementptr ptr, ptr %args, i64 {at}",
            f"%{name} = load ptr, ptr %in_{name}",
            f"%to_{name} = getelementptr i8, ptr %image, i64 {getattr(places, name)}",
            f"%has_{name} = call i1 @{conversion}(ptr %{name}, ptr %to_{name})",
            f"%with_{name} = and i1 {before}, %has_{name}",
        ]
        before = f"%with_{name}"
    return "\n".join(f"  {line}" for line in (*lines, f"%heads = and i1 {before}, true"))


def _copies(places: SlotPlaces) -> str:
    """Statements that copy all but the number into the slot."""
    lines = []
    for at in range(0, places.number, WORD_BYTES):
        lines += [
            f"%from_{at} = getelementptr i8, ptr %image, i64 {at}",
            f"%word_{at} = load i64, ptr %from_{at}",
            f"%to_{at} = getelementptr i8, ptr %slot, i64 {at}",
            f"store i64 %word_{at}, ptr %to_{at}",
        ]
    return "\n".join(f"  {line}" for line in lines)
