"""Launches that are packed, of kernels that are not there: no torch, no GPU."""

import time
from types import SimpleNamespace

from tkdebug.instrument.recorder import Recorder
from tkdebug.knobs import KNOBS
from tkdebug.records.events import ArgumentInfo, launch_type, next_launch_id
from tkdebug.runtime.launch.launch_writer import write_note

TENSOR = SimpleNamespace(shape=(4, 8), stride=lambda: (8, 1))


class Kernel:
    """Takes a tensor, an int, a float and a constant."""

    parameter_kinds = ("tensor", "int", "float", "fixed")
    write_note = staticmethod(write_note)

    def __init__(self, name="packed"):
        self.launch_record = launch_type(
            name, "native", {"num_warps": 4}, f"hash of {name}", describe
        )


def describe(values):
    tensor, n, scale, block = values
    return (
        ArgumentInfo("x_ptr", "*fp32", "a tensor", tuple(tensor.shape), tensor.stride()),
        ArgumentInfo("n", "i32", repr(n)),
        ArgumentInfo("scale", "fp32", repr(scale)),
        ArgumentInfo("BLOCK", "constexpr", repr(block)),
    )


def start(path, **options):
    """A recorder whose native launches are packed, and have no times."""
    recorder = Recorder(path, output=False, **options).start()
    with KNOBS.scope(cupti=False):
        recorder._gpu_used(None)
    assert recorder._packer is not None
    return recorder


def note(recorder, kernel, n=5, tensor=TENSOR, grid=(4, 1, 1), stream=7, scale=0.5):
    number = next_launch_id()
    note = recorder._packer.note_of(kernel)
    note(number, *grid, stream, time.time_ns(), tensor, n, scale, 64)
    return number
