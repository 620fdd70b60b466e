"""Tools written in C: two functions that are called around each launch.

The ABI is `examples/c_tool/tkdebug_tool.h`. A tool is registered by its functions' addresses, or by
the environment variable TKDEBUG_TOOL, which names shared libraries that export
`tkdebug_tool_init`.

Invariants: `size` comes first in each struct, so that later versions may add fields at the end;
texts and the cubin are valid during the call only.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

from tkdebug.errors import TkError
from tkdebug.instrument.launch_listeners.kernel_objects import KernelObject
from tkdebug.records.events import LaunchRecord
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.terminal.text import tell

VARIABLE = "TKDEBUG_TOOL"
ABI_VERSION = 1
_INIT = "tkdebug_tool_init"


# Facts that a tool may ask for beyond those that it gets anyway.
WANTS_CALLERS = 1


class NativeFrame(ctypes.Structure):
    """`struct tkdebug_frame`."""

    _fields_ = (
        ("function", ctypes.c_char_p),
        ("file", ctypes.c_char_p),
        ("line", ctypes.c_uint64),
    )


class NativeKernelFacts(ctypes.Structure):
    """`struct tkdebug_kernel`."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("line", ctypes.c_uint32),
        ("correlation_id", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("file", ctypes.c_char_p),
        ("source", ctypes.c_char_p),
        ("grid", ctypes.c_uint32 * 3),
        ("num_warps", ctypes.c_uint32),
        ("registers", ctypes.c_int32),
        ("shared_bytes", ctypes.c_int32),
        ("stream", ctypes.c_uint64),
        ("duration_ns", ctypes.c_int64),
        ("cubin", ctypes.c_char_p),
        ("cubin_bytes", ctypes.c_uint64),
        ("callers", ctypes.POINTER(NativeFrame)),
        ("callers_count", ctypes.c_uint64),
    )


CALLBACK = ctypes.CFUNCTYPE(None, ctypes.POINTER(NativeKernelFacts))


class NativeTool(ctypes.Structure):
    """`struct tkdebug_tool`."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("enter", ctypes.c_void_p),
        ("exit", ctypes.c_void_p),
        ("wants", ctypes.c_uint64),
    )


# Tools that were built before `wants` was added have no more than this.
_LEAST_TOOL_BYTES = NativeTool.wants.offset


def register_tool(enter: int | None, exit: int | None, wants: int = 0) -> Hook:
    """Call functions of C around each launch.

    Args:
        enter: address of a `void (*)(const struct tkdebug_kernel *)`, None or 0 for none.
        exit: the address of the function to call after each launch, None or 0 for none.
        wants: WANTS_CALLERS to get `callers`, else 0.

    Returns:
        The hook, for `HOOKS.remove`.
    """
    hook = Hook(enter=_caller(enter, wants), exit=_caller(exit, wants))
    HOOKS.add(hook)
    return hook


def load_tool(path: str) -> Hook:
    """Load a shared library and register the tool that it exports.

    Raises:
        TkError: it cannot be loaded, exports no tool, or is of another version of the ABI.
    """
    try:
        library = ctypes.CDLL(path)
        init = getattr(library, _INIT)
    except OSError as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise TkError(f"{VARIABLE}: {path}: {reason}") from None
    except AttributeError:
        raise TkError(f"{VARIABLE}: {path}: exports no {_INIT}") from None
    init.restype = ctypes.POINTER(NativeTool)
    found = init()
    if not found:
        raise TkError(f"{VARIABLE}: {path}: {_INIT} gave no tool")
    tool = found.contents
    if tool.version != ABI_VERSION or tool.size < _LEAST_TOOL_BYTES:
        raise TkError(
            f"{VARIABLE}: {path}: is of version {tool.version} of the ABI, expected {ABI_VERSION}"
        )
    wants = tool.wants if tool.size >= ctypes.sizeof(NativeTool) else 0
    return register_tool(tool.enter, tool.exit, wants)


def load_tools_of_environment() -> None:
    """Load the tools in TKDEBUG_TOOL; report one that cannot be loaded, and go on."""
    for path in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        try:
            load_tool(path)
        except TkError as error:
            tell(f"{error}; it is skipped")


def _caller(address: int | None, wants: int) -> Callable[[object, LaunchRecord], None] | None:
    if not address:
        return None
    function = CALLBACK(address)

    def call(kernel: object, launch: LaunchRecord) -> None:
        facts = _facts(KernelObject(kernel, launch), wants)
        function(ctypes.byref(facts))

    return call


def _facts(kernel: KernelObject, wants: int) -> NativeKernelFacts:
    callers = kernel.callers() if wants & WANTS_CALLERS else ()
    frames = (NativeFrame * len(callers))(
        *(NativeFrame(f.function.encode(), os.fsencode(f.file), f.line) for f in callers)
    )
    cubin = kernel.cubin
    registers, shared = kernel.registers, kernel.shared_bytes
    warps = kernel.options.get("num_warps")
    return NativeKernelFacts(
        size=ctypes.sizeof(NativeKernelFacts),
        line=kernel.line,
        correlation_id=kernel.correlation_id,
        name=kernel.name.encode(),
        file=os.fsencode(kernel.file),
        source=kernel.source.encode("utf-8", "replace"),
        grid=(ctypes.c_uint32 * 3)(*kernel.grid),
        num_warps=warps if isinstance(warps, int) else 0,
        registers=-1 if registers is None else registers,
        shared_bytes=-1 if shared is None else shared,
        stream=kernel.stream,
        duration_ns=-1 if kernel.duration_ns is None else kernel.duration_ns,
        cubin=cubin,
        cubin_bytes=0 if cubin is None else len(cubin),
        callers=ctypes.cast(frames, ctypes.POINTER(NativeFrame)),
        callers_count=len(callers),
    )
