"""One generated function per compiled kernel that packs its arguments and launches it.

Everything that does not change from launch to launch is a literal in the function's text, so that a
launch is one `struct` call and one foreign call: cuLaunchKernelEx with four arguments costs 0.2 us
through ctypes, cuLaunchKernel with its eleven 0.9 us.

Invariants: memory for the arguments is one launch's alone from packing until the driver has copied
it (slots are taken off a list and put back, both atomic), so threads need no lock, and the foreign
call gives up the GIL (a launch may wait for room in the stream's queue, behind Python callbacks).
Nothing waits, and workspaces on the device come from torch's allocator or the user's, so launches
may be captured in CUDA graphs.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tkdebug.runtime.cuda import driver_api
from tkdebug.runtime.cuda.packing import (
    SLOT_BYTES,
    WORKSPACE,
    Slot,
    bfloat16_bits,
    checked_value,
    padded_format,
)
from tkdebug.runtime.cuda.tensor_maps import UnmappableError, made_map_of, tensor_map_of, wrapped
from tkdebug.runtime.launch.allocation import Buffer
from tkdebug.runtime.launch.launch_writer import write_function

# CUlaunchConfig (cuda.h): grid x y z, block x y z, dynamic shared bytes, stream, attributes, count.
# Constant parts are two fields of bytes: each packed value costs 10 ns.
_BLOCK, _ATTRIBUTES = "4I4x", "QI4x"
_CONFIG = f"3I{struct.calcsize(f'={_BLOCK}')}sQ{struct.calcsize(f'={_ATTRIBUTES}')}s"
_CONFIG_BYTES = struct.calcsize(f"={_CONFIG}")
# CUlaunchAttribute: id, padding to 8 bytes, a union of 64.
_ATTRIBUTE = "I4x3I52x"
_CLUSTER_DIMENSION, _COOPERATIVE, _PROGRAMMATIC_SERIALIZATION = 4, 2, 6
_CLUSTER_SCHEDULING, _SPREAD = 5, 1
_POINTER_BYTES = 8

_WORKSPACE = f"""
    {WORKSPACE} = new_workspace(x * y * z * {{size}}, stream)"""

_FALLBACK = """
    except Unmappable:
        give(slot)
        return by_pointers(x, y, z, stream{taken})"""

Submit = Callable[..., Any]
# (memory, address of the config, address of the table of parameter pointers)
_Memory = tuple[bytearray, int, int]


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """The part of a launch that a compiled kernel fixes.

    Attributes:
        function: the driver's handle.
        threads: the threads of a block.
        shared_bytes: dynamic shared memory.
        clusters: thread blocks of a cluster.
        cooperative: all programs are resident at once.
        programmatic: may start before the launch before it in the stream has ended.
        workspace_bytes: global memory for each program.
    """

    function: int
    threads: int
    shared_bytes: int
    clusters: int = 1
    cooperative: bool = False
    programmatic: bool = False
    workspace_bytes: int = 0


@cache
def launch_function() -> Callable[[int, int, int, None], int]:
    """cuLaunchKernelEx(config, function, parameters, None) -> status."""
    return driver_api.raw_function("cuLaunchKernelEx", *[ctypes.c_void_p] * 4)


def make_submit(
    kernel: str,
    slots: Sequence[Slot],
    arguments: Sequence[str],
    shape: LaunchShape,
    recover: Callable[[int, bool], None],
    launch: Callable[[int, int, int, None], int] | None = None,
    by_pointers: Submit | None = None,
    new_workspace: Callable[[int, int], Buffer] | None = None,
) -> Submit:
    """A function `submit(x, y, z, stream, *arguments)` that launches on a grid of x, y, z.

    Args:
        kernel: the kernel's name, for messages.
        slots: the kernel's parameters.
        arguments: the names `v0`, `v3`, … of the arguments that the function takes.
        shape: the part of a launch that does not change.
        recover: called with a status that is no success and whether it is the last try; if it does
            not raise, the launch is tried again.
        launch: the function to call instead of the driver's.
        by_pointers: launches a kernel that does the same without the tensor maps that launches
            make, for arguments that have none; `submit` returns its result.
        new_workspace: called with a size in bytes and the stream, where the kernel needs that.
    """
    attributes = _attributes(shape)
    text = _submit_text(slots, arguments, shape)
    layout = struct.Struct(f"={_CONFIG}{padded_format(slots)}")
    free: list[_Memory] = []
    namespace: dict[str, Any] = {
        "take": free.pop,
        "give": free.append,
        "new_memory": lambda: _new_memory(layout.size, [slot.padded_bytes for slot in slots]),
        "pack": layout.pack_into,
        "unpackable": (struct.error, OverflowError, TypeError),
        "checked": _value_checker(kernel, slots),
        "launch": launch or launch_function(),
        "recover": recover,
        "bfloat16_bits": bfloat16_bits,
        "wrapped": wrapped,
        "Unmappable": UnmappableError,
        "by_pointers": by_pointers,
        "new_workspace": new_workspace,
        "block": struct.pack(f"={_BLOCK}", shape.threads, 1, 1, shape.shared_bytes),
        "attributes": _packed_array(attributes),
        # Kept alive with the function.
        "array_of_attributes": attributes,
        **{
            f"tensor_map{place}": tensor_map_of(slot.tensor_map)
            for place, slot in enumerate(slots)
            if slot.tensor_map is not None
        },
        **{
            f"tensor_map{place}": made_map_of(slot.made_map)
            for place, slot in enumerate(slots)
            if slot.made_map is not None
        },
    }
    return write_function("submit", f"launch of {kernel}", text, namespace)


def _submit_text(slots: Sequence[Slot], arguments: Sequence[str], shape: LaunchShape) -> str:
    taken = "".join(f", {name}" for name in arguments)
    values = "".join(f", {_value_text(slot, place)}" for place, slot in enumerate(slots))
    config = "x, y, z, block, stream, attributes"
    workspace = _WORKSPACE.format(size=shape.workspace_bytes) if shape.workspace_bytes else ""
    fallback = _FALLBACK if any(slot.made_map is not None for slot in slots) else ""
    return f"""\
def submit(x, y, z, stream{taken}):{workspace}
    try:
        slot = take()
    except IndexError:
        slot = new_memory()
    memory, config, parameters = slot
    try:
        pack(memory, 0, {config}{values}){fallback.format(taken=taken)}
    except unpackable:
        pack(memory, 0, {config}, *checked(({values.removeprefix(", ")}{"," if slots else ""})))
    status = launch(config, {shape.function}, parameters, None)
    if status:
        recover(status, False)
        status = launch(config, {shape.function}, parameters, None)
        if status:
            recover(status, True)
    give(slot)
"""


def _value_text(slot: Slot, place: int) -> str:
    return f"tensor_map{place}({slot.expression})" if slot.is_tensor_map else slot.expression


def _value_checker(kernel: str, slots: Sequence[Slot]) -> Callable[[Sequence[Any]], list[Any]]:
    def checked(values: Sequence[Any]) -> list[Any]:
        return [
            checked_value(kernel, slot, value) for slot, value in zip(slots, values, strict=True)
        ]

    return checked


def _new_memory(size_bytes: int, slot_bytes: Sequence[int]) -> _Memory:
    """Memory for one launch: the config, the values, and the table of pointers to them."""
    table = -(-size_bytes // SLOT_BYTES) * SLOT_BYTES
    slots = len(slot_bytes)
    memory = bytearray(table + max(slots, 1) * _POINTER_BYTES)
    # A bytearray stays where it is as long as nobody resizes it.
    base = ctypes.addressof((ctypes.c_char * len(memory)).from_buffer(memory))
    assert base % SLOT_BYTES == 0
    starts = itertools.accumulate(slot_bytes, initial=base + _CONFIG_BYTES)
    pointers = list(starts)[:-1]
    struct.pack_into(f"={slots}Q", memory, table, *pointers)
    return memory, base, base + table


def _attributes(shape: LaunchShape) -> ctypes.Array[ctypes.c_char] | None:
    """The array of CUlaunchAttribute; None if there are none."""
    entries: list[tuple[int, int, int, int]] = []
    if shape.clusters > 1:
        entries.append((_CLUSTER_DIMENSION, shape.clusters, 1, 1))
        entries.append((_CLUSTER_SCHEDULING, _SPREAD, 0, 0))
    if shape.cooperative:
        entries.append((_COOPERATIVE, 1, 0, 0))
    if shape.programmatic:
        entries.append((_PROGRAMMATIC_SERIALIZATION, 1, 0, 0))
    if not entries:
        return None
    packed = b"".join(struct.pack(f"={_ATTRIBUTE}", *entry) for entry in entries)
    return ctypes.create_string_buffer(packed, len(packed))


def _packed_array(attributes: ctypes.Array[ctypes.c_char] | None) -> bytes:
    """Return the address and number of the attributes, packed as in a config."""
    if attributes is None:
        return bytes(struct.calcsize(f"={_ATTRIBUTES}"))
    count = len(attributes) // struct.calcsize(f"={_ATTRIBUTE}")
    return struct.pack(f"={_ATTRIBUTES}", ctypes.addressof(attributes), count)
