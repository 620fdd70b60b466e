"""A native launch with hooks around it, written out for each kernel.

One generated function per compiled kernel, as its arguments are known: to put them together and
take them apart again would be a fifth of what a hook costs. For the same reason it makes the record
and calls the hooks itself, as `KernelLaunch.__init__`, `HOOKS.enter` and `HOOKS.exit` do.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns, time_ns
from typing import TYPE_CHECKING, Any

from tkdebug.events import next_launch_id
from tkdebug.hook_chain import HOOKS, LaunchHooks
from tkdebug.runtime.launch.launches_in_flight import IN_FLIGHT

if TYPE_CHECKING:
    from tkdebug.runtime.launch.native_kernel import NativeKernel

# Where the last hook has just been removed.
_NO_HOOKS = LaunchHooks((), ())

_TEXT = """\
def hooked(x, y, z, stream, values, checks, {passed}):
    record = new(record_type)
    record.id = next_launch_id()
    record.grid = x, y, z
    record.stream = stream
    record.values = values
    record.start_ns = time_ns()
    chain = hooks.launch or no_hooks
    for hook in chain.enters:
        try: hook(kernel, record)
        except Exception: hooks.report(hook)
    submit = kernel.submit if checks is None else checks.submit_as(record.id)
    ran = None
    started_ns = perf_counter_ns()
    try:
        if hooks.timed: ran = kernel.submit_timed(submit, record, x, y, z, stream, {passed})
        else: ran = submit(x, y, z, stream, {passed})
    except BaseException as error:
        record.error = f"{{type(error).__name__}}: {{error}}"
        raise
    finally:
        record.duration_ns = perf_counter_ns() - started_ns
        if in_flight.watched: in_flight.add(ran or kernel, record, ({passed}))
        for hook in chain.exits:
            try: hook(kernel, record)
            except Exception: hooks.report(hook)
"""


def make_hooked_launch(kernel: NativeKernel) -> Callable[..., None]:
    """The function that launches a loaded kernel with hooks; it does not wait for the kernel.

    It takes the grid along x, y and z, the stream's handle, a value for each parameter as a tuple,
    the `CheckedLaunch` that makes the launch in the place of `submit`, or None, and what `submit`
    takes.
    """
    count = sum(not parameter.is_constexpr for parameter in kernel.src.fn.params)
    text = _TEXT.format(passed="".join(f"a{index}, " for index in range(count)))
    namespace: dict[str, Any] = {
        "new": object.__new__,
        "record_type": kernel.launch_record,
        "kernel": kernel,
        "hooks": HOOKS,
        "no_hooks": _NO_HOOKS,
        "in_flight": IN_FLIGHT,
        "next_launch_id": next_launch_id,
        "time_ns": time_ns,
        "perf_counter_ns": perf_counter_ns,
    }
    exec(compile(text, f"<hooked launch of {kernel.name}>", "exec"), namespace)
    hooked: Callable[..., None] = namespace["hooked"]
    return hooked
