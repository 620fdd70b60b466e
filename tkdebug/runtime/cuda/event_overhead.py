"""What two CUDA events show of a kernel that does nothing: the correction of times by events.

Measured once for each device, behind a kernel that keeps the GPU busy until all is queued: so it is
the GPU that sets the pace, and not the host. On an H200 it is 3.7 us, of which 0.8 us are the empty
kernel's own by CUPTI.
"""

from __future__ import annotations

import ctypes
import statistics
from typing import Any

from tkdebug.runtime.cuda import driver_api
from tkdebug.runtime.cuda.device import Device

PAIRS = 25
_BUSY_NS = 2_000_000
_NS_PER_MS = 1_000_000
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
# The driver compiles it for whatever GPU it is. `busy` ends when so many nanoseconds have passed.
_PTX = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry empty() { ret; }
.visible .entry busy(.param .u64 length)
{
  .reg .u64 %t<5>;
  .reg .pred %p;
  ld.param.u64 %t1, [length];
  mov.u64 %t2, %globaltimer;
again:
  mov.u64 %t3, %globaltimer;
  sub.u64 %t4, %t3, %t2;
  setp.lt.u64 %p, %t4, %t1;
  @%p bra again;
  ret;
}
\0"""


def event_overhead_ns(device: Device) -> int:
    """What a pair of events around an empty kernel shows, in nanoseconds; the median of some.

    Raises:
        CudaError: the driver refuses.
    """
    call = driver_api.call
    with device.entered():
        module = call("cuModuleLoadData", _PTX)
        stream = call("cuStreamCreate", _NON_BLOCKING)
        events = [call("cuEventCreate", 0) for _ in range(2 * PAIRS)]
        try:
            return _measured_ns(module, stream, events)
        finally:
            for event in events:
                call("cuEventDestroy", event)
            call("cuStreamDestroy", stream)
            call("cuModuleUnload", module)


def _measured_ns(module: Any, stream: Any, events: list[Any]) -> int:
    call = driver_api.call
    empty, busy = (call("cuModuleGetFunction", module, name) for name in (b"empty", b"busy"))
    pairs = list(zip(events[::2], events[1::2], strict=True))
    # The first launches of a function load it.
    for length_ns in (1, _BUSY_NS):
        _launch(busy, stream, ((length_ns,), (ctypes.c_uint64,)))
        for start, end in pairs:
            call("cuEventRecord", start, stream)
            _launch(empty, stream, 0)
            call("cuEventRecord", end, stream)
        call("cuStreamSynchronize", stream)
    elapsed: list[float] = [call("cuEventElapsedTime", start, end) for start, end in pairs]
    return round(statistics.median(elapsed) * _NS_PER_MS)


def _launch(function: Any, stream: Any, parameters: Any) -> None:
    driver_api.call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, 0)
