"""Memory that CUPTI fills with activity records, handed over by functions that need no GIL.

CUPTI asks for a buffer in the middle of a launch, of whichever thread, and hands full ones over on
a thread of its own. A callback in Python would wait for the GIL there, with locks of the driver
held, while the thread that has the GIL waits for one of those in a call of torch's: so the two
callbacks are machine code. Responsible for the buffers alone; their contents are
`instrument.cupti`'s.

Another process can read them in place: through a socket they would be copied several times, with
the GIL held. It returns a buffer that it has read by itself, by one store into the memory.

Invariants: there are `MAX_BUFFERS`, beyond which CUPTI gets none and counts what it drops; a buffer
is CUPTI's, filled, lent, or free, never two of them; memory is never returned to the system, since
CUPTI may write until the process ends; no process waits for another one's lock.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from tkdebug.records.hook_chain import LentBuffer
from tkdebug.runtime.cuda.driver_api import function_address
from tkdebug.runtime.cuda.launch_calls import LaunchCalls

BUFFER_BYTES = 4 << 20
MAX_BUFFERS = 64
# Before the buffers: for each a word, which is 0 while it is free, 1 while CUPTI's or filled.
HEADER_BYTES = 4096
_WORD_BYTES = 4
_FREE, _LENT = 0, 2
# Where the memory lies; addresses and sizes in bytes of the filled buffers, oldest first.
_STATE = """
@held = internal global i32 0
@filled_count = internal global i32 0
@filled = internal global [{count} x [2 x i64]] zeroinitializer
@words = internal constant ptr inttoptr (i64 {address} to ptr)
@first = internal constant i64 {first}
@size = internal constant i64 {size}
@count = internal constant i64 {count}
declare i32 @sched_yield()
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
"""
# CUpti_BuffersCallbackRequestFunc and CUpti_BuffersCallbackCompleteFunc of cupti_activity.h.
_FUNCTIONS = """
define internal void @lock() {
  br label %again
again:
  %before = atomicrmw xchg ptr @held, i32 1 acquire
  %taken = icmp eq i32 %before, 0
  br i1 %taken, label %done, label %wait
wait:
  %yielded = call i32 @sched_yield()
  br label %again
done:
  ret void
}

define internal void @unlock() {
  store atomic i32 0, ptr @held release, align 4
  ret void
}

define internal ptr @word_of(i64 %number) {
  %words = load ptr, ptr @words
  %word = getelementptr i32, ptr %words, i64 %number
  ret ptr %word
}

define internal void @free(ptr %buffer) {
  %address = ptrtoint ptr %buffer to i64
  %first = load i64, ptr @first
  %size = load i64, ptr @size
  %at = sub i64 %address, %first
  %number = udiv i64 %at, %size
  %word = call ptr @word_of(i64 %number)
  store atomic i32 0, ptr %word release, align 4
  ret void
}

define void @requested(ptr %buffer, ptr %size, ptr %records) {
begin:
  call void @lock()
  store i64 0, ptr %records
  %bytes = load i64, ptr @size
  %count = load i64, ptr @count
  br label %look
look:
  %number = phi i64 [ 0, %begin ], [ %next, %taken ]
  %is_there = icmp ult i64 %number, %count
  br i1 %is_there, label %one, label %refuse
one:
  %word = call ptr @word_of(i64 %number)
  %state = load atomic i32, ptr %word acquire, align 4
  %is_free = icmp eq i32 %state, 0
  br i1 %is_free, label %give, label %taken
taken:
  %next = add i64 %number, 1
  br label %look
give:
  store atomic i32 1, ptr %word monotonic, align 4
  %first = load i64, ptr @first
  %before = mul i64 %number, %bytes
  %address = add i64 %first, %before
  %found = inttoptr i64 %address to ptr
  store ptr %found, ptr %buffer
  store i64 %bytes, ptr %size
  br label %done
refuse:
  store ptr null, ptr %buffer
  store i64 0, ptr %size
  br label %done
done:
  call void @unlock()
  ret void
}

define void @completed(ptr %context, i32 %stream, ptr %buffer, i64 %size, i64 %valid) {
  %absent = icmp eq ptr %buffer, null
  br i1 %absent, label %end, label %take
take:
  call void @lock()
  %empty = icmp eq i64 %valid, 0
  br i1 %empty, label %unused, label %used
unused:
  call void @free(ptr %buffer)
  br label %done
used:
  %n = load i32, ptr @filled_count
  %at = getelementptr [2 x i64], ptr @filled, i32 %n, i32 0
  %address = ptrtoint ptr %buffer to i64
  store i64 %address, ptr %at
  %bytes_at = getelementptr [2 x i64], ptr @filled, i32 %n, i32 1
  store i64 %valid, ptr %bytes_at
  %more = add i32 %n, 1
  store i32 %more, ptr @filled_count
  br label %done
done:
  call void @unlock()
  br label %end
end:
  ret void
}

define i64 @take(ptr %valid) {
  call void @lock()
  %n = load i32, ptr @filled_count
  %none = icmp eq i32 %n, 0
  br i1 %none, label %absent, label %some
some:
  %address = load i64, ptr @filled
  %bytes_at = getelementptr i64, ptr @filled, i32 1
  %bytes = load i64, ptr %bytes_at
  store i64 %bytes, ptr %valid
  %less = sub i32 %n, 1
  store i32 %less, ptr @filled_count
  %second = getelementptr [2 x i64], ptr @filled, i32 1
  %rest = zext i32 %less to i64
  %moved = mul i64 %rest, 16
  call void @llvm.memmove.p0.p0.i64(ptr @filled, ptr %second, i64 %moved, i1 false)
  br label %done
absent:
  br label %done
done:
  %result = phi i64 [ %address, %some ], [ 0, %absent ]
  call void @unlock()
  ret i64 %result
}
"""


class _Code(NamedTuple):
    """Addresses of machine code, and the object that keeps it."""

    requested: int
    completed: int
    take: Callable[[ctypes.c_int64], int]
    engine: object


class ActivityBuffers:
    """The buffers of this process.

    Args:
        size_bytes: the size of each buffer.
        count: the number of buffers.
        is_capturing: address of cuStreamIsCapturing, for calls that a CUDA graph captures.

    Attributes:
        requested: address of the function that CUPTI takes buffers from.
        completed: the address of the callback that CUPTI gives full buffers to.
        called: the address of the callback for calls of the driver.
        descriptor: the descriptor of the memory, for another process; -1 if there is none.

    Raises:
        OSError: there is no such memory, or this process may not make machine code.
    """

    def __init__(
        self,
        size_bytes: int = BUFFER_BYTES,
        count: int = MAX_BUFFERS,
        is_capturing: int = 0,
    ) -> None:
        assert count * _WORD_BYTES <= HEADER_BYTES
        if sys.platform == "linux" and not may_run_what_it_writes():
            raise OSError("the system forbids this process to make code (execmem, MDWE)")
        all_bytes = HEADER_BYTES + count * size_bytes
        self.descriptor = _shared(all_bytes)
        # Memory that is not written to costs nothing.
        self._memory = mmap.mmap(self.descriptor, all_bytes)
        self._size_bytes = size_bytes
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._code = _compiled(self._address, size_bytes, count)
        self._lent: list[LentBuffer] = []
        self.requested = self._code.requested
        self.completed = self._code.completed
        self._calls = LaunchCalls(os.getpid(), is_capturing)
        self.called = self._calls.called

    def filled(self) -> list[bytes]:
        """Return the buffers handed over since the last time, oldest first, and free them."""
        found = []
        for one in self._taken():
            found.append(self._memory[one.at : one.at + one.size_bytes])
            self._free(one)
        return found

    def calls(self) -> bytes:
        """The calls of the driver noted since the last time, packed by `CALL_FIELDS`."""
        return self._calls.take()

    def lend(self) -> list[LentBuffer]:
        """Lend the filled buffers to another process, which frees each by a 0 at its word."""
        found = self._taken()
        # Before the words are written: what was given back may have been filled again.
        left = self._still_lent()
        for one in found:
            self._memory[one.word_at] = _LENT
        self._lent = [*left, *found]
        return found

    def lent_count(self) -> int:
        """Return the number of buffers that the other process has not given back."""
        self._lent = self._still_lent()
        return len(self._lent)

    def take_back(self) -> None:
        """Take back the lent buffers: the other process is gone."""
        for one in self._still_lent():
            self._free(one)
        self._lent = []

    def _still_lent(self) -> list[LentBuffer]:
        return [one for one in self._lent if self._memory[one.word_at] == _LENT]

    def _free(self, buffer: LentBuffer) -> None:
        # One byte of the word; the others are 0.
        self._memory[buffer.word_at] = _FREE

    def _taken(self) -> list[LentBuffer]:
        found = []
        valid = ctypes.c_int64()
        while address := self._code.take(valid):
            at = address - self._address
            number = (at - HEADER_BYTES) // self._size_bytes
            found.append(LentBuffer(number * _WORD_BYTES, at, valid.value))
        return found


def activity_buffers() -> ActivityBuffers:
    """The buffers of this process; CUPTI has one client.

    Raises:
        OSError: there is no such memory, or this process may not make machine code.
        CudaError: there is no driver.
    """
    return _buffers()


@cache
def _buffers() -> ActivityBuffers:
    return ActivityBuffers(is_capturing=function_address("cuStreamIsCapturing", 12000))


def _shared(size_bytes: int) -> int:
    if not hasattr(os, "memfd_create"):
        return -1  # nor is there a process that could read it
    descriptor = os.memfd_create("tkdebug-activities", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, size_bytes)
    return descriptor


def _compiled(address: int, size_bytes: int, count: int) -> _Code:
    # LLVM takes a tenth of a second, which only processes that use a GPU pay.
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    first = address + HEADER_BYTES
    state = _STATE.format(address=address, first=first, size=size_bytes, count=count)
    module = llvm.parse_assembly(state + _FUNCTIONS)
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    find = engine.get_function_address
    # With the GIL: it takes less than to give it up, for which the script would have to wait.
    take = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.POINTER(ctypes.c_int64))
    return _Code(find("requested"), find("completed"), take(find("take")), engine)


def may_run_what_it_writes() -> bool:
    """Whether this process may make memory executable.

    SELinux (execmem), systemd (MemoryDenyWriteExecute) and `prctl(PR_SET_MDWE)` forbid it; LLVM
    does not report that, and a call of its code crashes.
    """
    page = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    page[0] = 0  # LLVM's pages have been written, too
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    status: int = protect(address, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC)
    page.close()
    return status == 0
