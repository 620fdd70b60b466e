"""Launches of checked kernels on a GPU, made by hand, in memory that is filled all around."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import torch
from check_support import ALWAYS, Launch, copy_of, faults_found, for_ends

from tkdebug.compiler.ir import PointerType
from tkdebug.compiler.ir.types import ScalarType
from tkdebug.compiler.sites.checks import CheckOptions, CheckPlan
from tkdebug.compiler.sites.live_memory import LOWEST, MEMORY, MemoryMap
from tkdebug.compiler.sites.table import HEADER_BYTES, elements_behind, table_bytes
from tkdebug.compiler.targets.backend import NativeOptions
from tkdebug.compiler.targets.nvptx.compile import compile_module
from tkdebug.interpreter.closer_looks.reported_launch import PassedTensor, ReportedLaunch
from tkdebug.interpreter.plan import Prepared
from tkdebug.records.events import Fault


def on_gpu(tensor: torch.Tensor) -> torch.Tensor:
    """Return the view of a copy of its allocation, within memory that is filled all around."""
    storage = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    margin = 4096
    whole = torch.zeros(storage.numel() + 2 * margin, dtype=torch.uint8, device="cuda")
    whole[margin : margin + storage.numel()] = storage.cuda()
    count = whole.numel() // tensor.element_size()
    elements = whole[: count * tensor.element_size()].view(tensor.dtype)
    offset = margin // tensor.element_size() + int(tensor.storage_offset())
    return elements.as_strided(tensor.shape, tensor.stride(), offset)


class NotByHandError(Exception):
    """Kernels that are not launched: they could hang or crash the GPU, or take other arguments."""


_CODES = {"i1": "B", "i8": "B", "i16": "H", "i32": "I", "i64": "Q", "f32": "f", "f64": "d"}


def packed_scalar(type_: ScalarType, value: Any) -> bytes:
    """A number as a kernel takes it."""
    code = _CODES.get(type_.name)
    if code is None:
        raise NotByHandError(f"an argument of type {type_.name}")
    if type_.is_integer:
        return struct.pack(f"={code}", int(value) & (1 << max(8, type_.bits)) - 1)
    return struct.pack(f"={code}", float(value))


def require_harmless(launch: Launch, plan: CheckPlan) -> None:
    """See that a kernel ends, and that all that it accesses is tested.

    Raises:
        NotByHandError: it does not.
    """
    if Prepared.of(launch.module).spin_loops:
        raise NotByHandError("programs that wait for each other")
    if any(site.bound is None and site.element_bytes for site in plan.sites):
        raise NotByHandError("addresses that are not tested")
    tables = [v for v in launch.values if isinstance(v, torch.Tensor) and v.dtype == torch.int64]
    if plan.takes_map and not all(bool((table < LOWEST).all()) for table in tables):
        raise NotByHandError("addresses of the host's memory")
    tensors = (torch.Tensor, bool, int, float)
    if not all(isinstance(value, tensors) for value in launch.values):
        raise NotByHandError("a descriptor")


def natively(
    launch: Launch, options: CheckOptions = ALWAYS, knows_ends: bool = True
) -> tuple[list[Fault], list[Any]]:
    """The faults that a checked native launch reports, and what it leaves in memory.

    Args:
        launch: the launch.
        options: what is looked for.
        knows_ends: whether it is compiled for where the launch's tensors end.
    """
    from tkdebug.compiler.targets.registered_backends import target_of
    from tkdebug.runtime.cuda import driver_api
    from tkdebug.runtime.cuda.device import device, load_kernel

    torch.zeros(1, device="cuda")
    module = copy_of(launch)
    options = for_ends(options, launch) if knows_ends else options
    target = target_of(torch.cuda.get_device_capability())
    binary = compile_module(
        module, NativeOptions(host_tma_descriptors=False, checks=options), target
    ).binary()
    plan = binary.checks
    if plan is None:
        return [], launch.values
    require_harmless(launch, plan)
    loaded = load_kernel(device(0), binary.cubin, binary.entry, binary.threads, binary.shared_bytes)
    values = [
        on_gpu(value) if isinstance(value, torch.Tensor) else value for value in launch.values
    ]
    names = module.function.attributes["arg_names"]
    size = HEADER_BYTES + table_bytes(len(plan.sites))
    table = torch.zeros(size, dtype=torch.uint8, device="cuda")[HEADER_BYTES:]
    packed = []
    for argument, value in zip(
        plan.module.function.regions[0].block.arguments, values, strict=True
    ):
        if isinstance(argument.type, PointerType):
            packed.append(struct.pack("=Q", value.data_ptr()))
        else:
            assert isinstance(argument.type, ScalarType)
            packed.append(packed_scalar(argument.type, value))
    packed += [struct.pack("=Q", table.data_ptr())] * 2
    passed = {
        name: PassedTensor.of(given)._replace(address=value.data_ptr())
        for name, given, value in zip(names, launch.values, values, strict=True)
        if isinstance(given, torch.Tensor)
    }
    given = dict(zip(names, launch.values, strict=True))
    memory_map = torch.frombuffer(bytearray(MemoryMap(()).packed(8)), dtype=torch.uint8).cuda()
    for name in plan.bounds:
        if name == MEMORY:
            first = memory_map.data_ptr()
            packed += [struct.pack("=Q", at) for at in (first, first + memory_map.numel())]
            packed.append(struct.pack("=i", 0))
            continue
        first, end = PassedTensor.of(given[name]).byte_bounds()
        address = passed[name].address
        packed += [struct.pack("=Q", place) for place in (address, address + end - first)]
        size = passed[name].dtype.itemsize
        packed.append(struct.pack("=i", elements_behind(first, end, size)))
    memory = [ctypes.create_string_buffer(value, 8) for value in packed]
    pointers = (ctypes.c_void_p * len(memory))(*map(ctypes.addressof, memory))
    driver_api.call(
        "cuLaunchKernel", loaded.function, *launch.grid, binary.threads, 1, 1, binary.shared_bytes,
        0, ctypes.addressof(pointers), 0,
    )  # fmt: skip
    torch.cuda.synchronize()
    checked = ReportedLaunch(module.name, 0, launch.grid, passed, launch.arguments)
    after = [v.cpu() if isinstance(v, torch.Tensor) else v for v in values]
    return faults_found(plan, bytes(table.cpu().numpy()), checked, launch), after
