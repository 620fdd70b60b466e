"""Memory that CUPTI fills with activity records, handed over by functions that need no GIL.

CUPTI asks for a buffer in the middle of a launch, of whichever thread, and hands full ones over on
a thread of its own. A callback in Python would wait for the GIL there, with locks of the driver's
held, while the thread that has the GIL waits for one of those in a call of torch's: so the two
callbacks are machine code. Responsible for the buffers alone; what is in them is
`instrument.cupti`'s.

Invariants: at most `MAX_BUFFERS` are allocated, beyond which CUPTI gets none and counts what it
drops; a buffer is CUPTI's, filled, or free, never two of them; memory is never returned to the
system, since CUPTI may write until the process ends.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

BUFFER_BYTES = 4 << 20
MAX_BUFFERS = 64

# Addresses of the free buffers; addresses and sizes in bytes of the filled ones, oldest first.
_STATE = """
@held = internal global i32 0
@allocated = internal global i32 0
@free_count = internal global i32 0
@filled_count = internal global i32 0
@free = internal global [{count} x ptr] zeroinitializer
@filled = internal global [{count} x [2 x i64]] zeroinitializer
@size = internal constant i64 {size}
@most = internal constant i32 {count}
declare noalias ptr @malloc(i64)
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

define internal void @push_free(ptr %buffer) {
  %n = load i32, ptr @free_count
  %to = getelementptr ptr, ptr @free, i32 %n
  store ptr %buffer, ptr %to
  %more = add i32 %n, 1
  store i32 %more, ptr @free_count
  ret void
}

define void @requested(ptr %buffer, ptr %size, ptr %records) {
  call void @lock()
  store i64 0, ptr %records
  %bytes = load i64, ptr @size
  store i64 %bytes, ptr %size
  %n = load i32, ptr @free_count
  %none = icmp eq i32 %n, 0
  br i1 %none, label %new, label %old
old:
  %less = sub i32 %n, 1
  store i32 %less, ptr @free_count
  %from = getelementptr ptr, ptr @free, i32 %less
  %found = load ptr, ptr %from
  store ptr %found, ptr %buffer
  br label %done
new:
  %count = load i32, ptr @allocated
  %most = load i32, ptr @most
  %room = icmp ult i32 %count, %most
  br i1 %room, label %allocate, label %refuse
allocate:
  %made = call ptr @malloc(i64 %bytes)
  %failed = icmp eq ptr %made, null
  br i1 %failed, label %refuse, label %give
give:
  %now = add i32 %count, 1
  store i32 %now, ptr @allocated
  store ptr %made, ptr %buffer
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
  call void @push_free(ptr %buffer)
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
define void @give_back(ptr %buffer) {
  call void @lock()
  call void @push_free(ptr %buffer)
  call void @unlock()
  ret void
}
"""


class _Code(NamedTuple):
    """Addresses, and what keeps the code there."""

    requested: int
    completed: int
    take: Callable[[ctypes.c_int64], int]
    give_back: Callable[[int], None]
    engine: object


class ActivityBuffers:
    """The buffers of this process.

    Attributes:
        requested: address of the function that CUPTI takes buffers from.
        completed: of that it gives them to.
    """

    def __init__(self, size_bytes: int = BUFFER_BYTES, count: int = MAX_BUFFERS) -> None:
        self._code = _compiled(size_bytes, count)
        self.requested = self._code.requested
        self.completed = self._code.completed

    def filled(self) -> list[bytes]:
        """What was handed over since, oldest first; the buffers are free again."""
        found = []
        valid = ctypes.c_int64()
        while address := self._code.take(valid):
            found.append(ctypes.string_at(address, valid.value))
            self._code.give_back(address)
        return found


def activity_buffers() -> ActivityBuffers:
    """The buffers of this process; CUPTI has one client."""
    return _buffers()


@cache
def _buffers() -> ActivityBuffers:
    return ActivityBuffers()


def _compiled(size_bytes: int, count: int) -> _Code:
    # LLVM takes a tenth of a second, which only processes that use a GPU pay.
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(_STATE.format(size=size_bytes, count=count) + _FUNCTIONS)
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    address = engine.get_function_address
    take = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.POINTER(ctypes.c_int64))
    give_back = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    return _Code(
        address("requested"),
        address("completed"),
        take(address("take")),
        give_back(address("give_back")),
        engine,
    )
