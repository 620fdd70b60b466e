"""`CompiledKernel.run`, by which Inductor launches: all arguments by position.

One generated function per compiled kernel. What is known of the arguments is known since it was
compiled, so nothing is bound or looked up: tensors become addresses, and the kernel is submitted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from time import time_ns
from typing import TYPE_CHECKING, Any

from tkdebug.compiler.dtypes import dtype, pointer_type
from tkdebug.compiler.frontend.arguments import Constant
from tkdebug.events import next_launch_id
from tkdebug.hook_chain import HOOKS
from tkdebug.runtime.device.platform import platform_in_force
from tkdebug.runtime.launch.launches_in_flight import IN_FLIGHT, NOWHERE, plain

if TYPE_CHECKING:
    from tkdebug.runtime.launch.compiled_kernel import CompiledKernel
    from tkdebug.runtime.launch.native_kernel import NativeKernel

Run = Callable[..., None]


def make_run(kernel: NativeKernel, kernels: Mapping[object, CompiledKernel] | None = None) -> Run:
    """The function that launches a kernel, with upstream's arguments.

    It takes the grid along x, y and z, the stream's handle, five things that upstream's launcher
    wants (function, packed metadata, launch metadata, hooks) and that are not looked at, and a
    value for each parameter of the kernel. A grid with an axis of 0 launches nothing.

    Args:
        kernel: the one to launch.
        kernels: what launches in its place, while that is looked at for checks, at the key ().
    """
    import torch

    # It imports native kernels, which import this.
    from tkdebug.runtime.probes.watched_kernel import WatchedKernel

    def address(position: int, value: Any) -> Any:
        if value.__class__ is int or value is None:
            return value
        name = kernel.src.fn.arg_names[position]
        return platform_in_force().accessible_address(kernel.name, name, value, kernel.device)

    namespace: dict[str, Any] = {
        "Tensor": torch.Tensor,
        "data_ptr": torch._C.TensorBase.data_ptr,  # noqa: SLF001  (as native launches do)
        "address": address,
        "kernel": kernel,
        "Parameter": torch.nn.Parameter,
        "Watched": WatchedKernel,
        "find": (kernels or {}).get,
        "hooks": HOOKS,
        "in_flight": IN_FLIGHT,
        "caller": sys._getframe,  # noqa: SLF001
        "place_from": IN_FLIGHT.place_from,
        "plain": plain,
        "nowhere": NOWHERE,
        "ordinal": IN_FLIGHT.ordinal,
        "keep": IN_FLIGHT.keep,
        "now": time_ns,
        "next_launch_id": next_launch_id,
    }
    text = _text(kernel, kernels is not None)
    exec(compile(text, f"<run of {kernel.name}>", "exec"), namespace)
    run: Run = namespace["run"]
    return run


_LOOK = """
    watched = find(())
    if watched.__class__ is Watched:
        for get, name, value in watched.watched:
            if get(name) is not value:
                watched.launch_seen((x, y, z), stream, ({values}), ({passed}))
                return"""


def _text(kernel: NativeKernel, is_looked_at: bool) -> str:
    specs = kernel.src.specs
    params = kernel.src.fn.params
    values = "".join(f"a{index}, " for index in range(len(specs)))
    passed = "".join(
        _passed(index, isinstance(spec, pointer_type))
        for index, (spec, parameter) in enumerate(zip(specs, params, strict=True))
        if not parameter.is_constexpr
    )
    # Of addresses and numbers alone there is nothing to leave out.
    are_plain = all(isinstance(spec, pointer_type | dtype | Constant) for spec in specs)
    kept = "passed" if are_plain else "plain(passed)"
    look = _LOOK.format(values=values, passed=passed) if is_looked_at else ""
    return f"""\
def run(x, y, z, stream, function, packed, metadata, enter, exit, {values}):
    if x <= 0 or y <= 0 or z <= 0: return{look}
    if not hooks.launch:
        kernel.submit(x, y, z, stream, {passed})
        return
    packer = hooks.packer
    if packer is None:
        kernel.hooked(x, y, z, stream, ({values}), None, {passed})
        return
    passed = ({passed})
    note = packer.notes.get(kernel) or packer.note_of(kernel)
    start_ns = now()
    try: ran = kernel.submit(x, y, z, stream, *passed)
    except BaseException as error:
        kernel.tell_failed(error, (x, y, z), stream, ({values}), start_ns)
        raise
    id = next_launch_id()
    note(id, x, y, z, stream, start_ns, {values})
    if in_flight.watched:
        code, at = place_from(caller(1)) or nowhere
        keep((ordinal(), id, ran or kernel, x, y, z, stream, packer, code, at) + {kept})
"""


def _passed(index: int, is_pointer: bool) -> str:
    name = f"a{index}"
    if not is_pointer:
        return f"{name}, "
    is_tensor = f"{name}.__class__ is Tensor or {name}.__class__ is Parameter"
    return f"data_ptr({name}) if {is_tensor} else address({index}, {name}), "
