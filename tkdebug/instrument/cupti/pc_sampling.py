"""Samples of warps' places and waits, by CUPTI's PC sampling API.

The GPU looks at each scheduler every 2**n cycles, and notes the program counter of one of its warps
with the reason why that warp issues nothing. Kernels run beside each other, as they do without
sampling ("continuous" mode). Structures and numbers: `cupti_pcsampling.h` of CUDA 12.4 to 13.0, in
which they are the same. Responsible for one context's sampling; nothing here waits for the GPU.

One process at a time samples a GPU: with two, CUPTI gives one of them errors, and crashes there.
The claim is a lock of a file that nobody reads or writes; it ends with the process.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Mapping
from ctypes import POINTER, Structure, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tkdebug.instrument.cupti.library import CuptiError, result_text

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

FIRST_VERSION = 22  # CUPTI_API_VERSION of CUDA 12.4
MOST_PCS = 1 << 14  # taken at once
_NAME_BYTES = 128  # CUPTI_STALL_REASON_STRING_SIZE
_STALL_PREFIX = "smsp__pcsamp_warps_issue_stalled_"
_NOT_ISSUED = "_not_issued"
# CUpti_PCSamplingConfigurationAttributeType
_PERIOD, _STALL_REASONS, _SCRATCH_BYTES, _MODE, _BUFFER = 1, 2, 3, 5, 8
_CONTINUOUS = 1
_SCRATCH = 16 << 20
_BUFFER_FULL = 8  # CUPTI_ERROR_OUT_OF_MEMORY


class _Context(Structure):
    _fields_ = (("size", c_size_t), ("private", c_void_p), ("context", c_void_p))


class _ReasonCount(Structure):
    _fields_ = (*_Context._fields_, ("count", POINTER(c_size_t)))


class _Reasons(Structure):
    _fields_ = (
        *_Context._fields_,
        ("count", c_size_t),
        ("numbers", POINTER(c_uint32)),
        ("names", POINTER(c_void_p)),
    )


class _Setting(Structure):
    _fields_ = (("kind", c_uint32), ("status", c_uint32), ("data", c_uint64 * 3))


class _Settings(Structure):
    _fields_ = (*_Context._fields_, ("count", c_size_t), ("settings", POINTER(_Setting)))


class _Take(Structure):
    _fields_ = (*_Context._fields_, ("data", c_void_p))


class _Data(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("room", c_size_t),
        ("samples", c_uint64),
        ("dropped", c_uint64),
        ("count", c_size_t),
        ("left", c_size_t),
        ("range", c_uint64),
        ("pcs", c_void_p),
        ("not_of_users", c_uint64),
        ("is_full", c_uint8),
    )


class _CrcOfCubin(Structure):
    _fields_ = (("size", c_size_t), ("bytes", c_size_t), ("cubin", c_void_p), ("crc", c_uint64))


def _record_type() -> np.dtype[np.void]:
    """Return the numpy type of a CUpti_PCSamplingPCData record."""
    import numpy as np

    fields = ("size", "crc", "pc", "function", "pad", "name", "reasons", "stalls", "correlation")
    types = ("<u8", "<u8", "<u8", "<u4", "<u4", "<u8", "<u8", "<u8", "<u4")
    return np.dtype(
        {
            "names": fields,
            "formats": types,
            "offsets": (0, 8, 16, 24, 28, 32, 40, 48, 56),
            "itemsize": 64,
        }
    )


class Taken(NamedTuple):
    """The samples since the last time.

    Attributes:
        counts: samples by (CRC of the cubin, function, offset of the instruction, stall reason).
        total: the samples of all kernels, also of kernels that NVIDIA keeps to itself.
        dropped: samples that the hardware had no room for.
    """

    counts: Mapping[tuple[int, str, int, str], int]
    total: int
    dropped: int


class PcSampling:
    """PC sampling in one CUDA context, from `start` to `stop`.

    Args:
        library: the loaded libcupti.
        context: a CUcontext.
        period: samples are 2**period cycles apart, 5 to 31; None for CUPTI's choice by the GPU.
    """

    def __init__(self, library: ctypes.CDLL, context: int, period: int | None = None) -> None:
        self._library = library
        self._context = context
        self._period = period
        self._names: dict[int, str] = {}
        self._functions: dict[int, str] = {}
        self._room = _Room(0, 0)
        self._configured = _Room(0, 0)

    def start(self) -> None:
        """Begin to sample.

        Raises:
            CuptiError: CUPTI refuses, as where the driver lets only root sample.
        """
        self._call("cuptiPCSamplingEnable", self._of(_Context))
        try:
            self._names = self._stall_reasons()
            self._configure()
        except BaseException:
            self._call("cuptiPCSamplingDisable", self._of(_Context))
            raise

    def take(self) -> Taken:
        """Take the samples since the last time; the hardware may hold back the newest.

        Raises:
            CuptiError: CUPTI refuses.
        """
        counts: dict[tuple[int, str, int, str], int] = {}
        total = dropped = 0
        while True:
            arguments = self._of(_Take, data=ctypes.addressof(self._room.data))
            status = self._status("cuptiPCSamplingGetData", arguments)
            if status not in (0, _BUFFER_FULL):
                raise CuptiError(f"cuptiPCSamplingGetData: {result_text(status)}", status)
            total += self._room.data.samples
            dropped += self._room.data.dropped
            self._add(self._room, counts)
            if not self._room.data.left or status == _BUFFER_FULL:
                return Taken(counts, total, dropped)

    def stop(self) -> Taken:
        """Stop sampling, and return the samples that were left.

        Raises:
            CuptiError: CUPTI refuses.
        """
        counts: dict[tuple[int, str, int, str], int] = {}
        self._call("cuptiPCSamplingDisable", self._of(_Context))
        self._add(self._configured, counts)
        data = self._configured.data
        return Taken(counts, data.samples, data.dropped)

    def _stall_reasons(self) -> dict[int, str]:
        """Return stall reasons by CUPTI's numbers, without those that are part of another one."""
        count = c_size_t()
        self._call(
            "cuptiPCSamplingGetNumStallReasons",
            self._of(_ReasonCount, count=ctypes.pointer(count)),
        )
        numbers = (c_uint32 * count.value)()
        texts = [ctypes.create_string_buffer(_NAME_BYTES) for _ in range(count.value)]
        places = (c_void_p * count.value)(*map(ctypes.addressof, texts))
        self._call(
            "cuptiPCSamplingGetStallReasons",
            self._of(_Reasons, count=count.value, numbers=numbers, names=places),
        )
        named = {number: text.value.decode() for number, text in zip(numbers, texts, strict=True)}
        return {
            number: name.removeprefix(_STALL_PREFIX)
            for number, name in named.items()
            if name.startswith(_STALL_PREFIX) and not name.endswith(_NOT_ISSUED)
        }

    def _configure(self) -> None:
        self._room = _Room(MOST_PCS, len(self._names))
        self._configured = _Room(MOST_PCS, len(self._names))
        wanted = (c_uint32 * len(self._names))(*self._names)
        values: list[tuple[int, tuple[int, ...]]] = [
            (_MODE, (_CONTINUOUS,)),
            (_STALL_REASONS, (len(self._names), ctypes.addressof(wanted))),
            (_SCRATCH_BYTES, (_SCRATCH,)),
            (_BUFFER, (ctypes.addressof(self._configured.data),)),
        ]
        if self._period is not None:
            values.append((_PERIOD, (self._period,)))
        settings = (_Setting * len(values))()
        for setting, (kind, data) in zip(settings, values, strict=True):
            setting.kind = kind
            setting.data[: len(data)] = data
        self._call(
            "cuptiPCSamplingSetConfigurationAttribute",
            self._of(_Settings, count=len(values), settings=settings),
        )

    def _add(self, room: _Room, counts: dict[tuple[int, str, int, str], int]) -> None:
        import numpy as np

        records = room.records[: min(room.data.count, MOST_PCS)]
        for place, record in enumerate(records):
            name = self._function(int(record["name"]))
            stalls = room.stalls[place, : int(record["reasons"])]
            for row in np.flatnonzero(stalls["samples"]).tolist():
                reason = self._names.get(int(stalls["number"][row]))
                if reason is None:
                    continue
                key = (int(record["crc"]), name, int(record["pc"]), reason)
                counts[key] = counts.get(key, 0) + int(stalls["samples"][row])
        room.clear()

    def _function(self, address: int) -> str:
        if address not in self._functions:
            text = ctypes.string_at(address) if address else b"(unnamed)"
            self._functions[address] = text.decode("utf-8", "backslashreplace")
        return self._functions[address]

    def _of(self, kind: type[Any], **values: Any) -> Any:
        arguments = kind(size=ctypes.sizeof(kind), context=self._context)
        for name, value in values.items():
            if isinstance(value, ctypes.Array):
                value = ctypes.cast(value, dict(kind._fields_)[name])
            setattr(arguments, name, value)
        return arguments

    def _status(self, name: str, arguments: Any) -> int:
        return int(getattr(self._library, name)(ctypes.byref(arguments)))

    def _call(self, name: str, arguments: Any) -> None:
        status = self._status(name, arguments)
        if status:
            raise CuptiError(f"{name}: {result_text(status)}", status)


class _Room:
    """Memory for the records of `pcs` instructions with `reasons` counts each."""

    def __init__(self, pcs: int, reasons: int) -> None:
        import numpy as np

        self._reasons = reasons
        self.stalls: npt.NDArray[np.void] = np.zeros(
            (pcs, reasons), np.dtype([("number", "<u4"), ("samples", "<u4")])
        )
        self.records: npt.NDArray[np.void] = np.zeros(pcs, _record_type())
        self.records["size"] = self.records.itemsize
        self.records["stalls"] = self.stalls.ctypes.data + np.arange(pcs) * reasons * 8
        self.data = _Data(size=ctypes.sizeof(_Data), room=pcs, pcs=self.records.ctypes.data)
        self.clear()

    def clear(self) -> None:
        """Clear the records, to make room for others."""
        self.records["reasons"] = self._reasons
        self.stalls["samples"] = 0
        self.data.count = 0


def crc_of_cubin(library: ctypes.CDLL, cubin: bytes) -> int:
    """Return the checksum by which CUPTI names a cubin.

    Raises:
        CuptiError: CUPTI refuses.
    """
    kept = ctypes.create_string_buffer(cubin, len(cubin))
    arguments = _CrcOfCubin(
        size=ctypes.sizeof(_CrcOfCubin), bytes=len(cubin), cubin=ctypes.addressof(kept)
    )
    status = int(library.cuptiGetCubinCrc(ctypes.byref(arguments)))
    if status:
        raise CuptiError(f"cuptiGetCubinCrc: {result_text(status)}", status)
    return int(arguments.crc)


class SampledGpus:
    """The GPUs that this process samples."""

    def __init__(self) -> None:
        self._locks: dict[str, int] = {}

    def claim(self, gpu: str) -> bool:
        """Claim a GPU; return False if another process has claimed it, True if that is unknown.

        Args:
            gpu: its UUID; "" if that is not known.
        """
        if not gpu or gpu in self._locks:
            return True
        try:
            import fcntl
        except ImportError:  # Windows
            return True
        path = Path(tempfile.gettempdir()) / f"tkdebug-samples-{gpu}"
        try:
            # Where others may have put a link, or a pipe that would wait for its writer.
            kind = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(path, os.O_RDONLY | os.O_CREAT | kind, 0o644)
        except OSError:
            return True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            return False
        self._locks[gpu] = file
        return True

    def release(self) -> None:
        """Release all claims."""
        while self._locks:
            os.close(self._locks.popitem()[1])
