"""Notes the driver calls that launch kernels, by a callback of CUPTI's that needs no GIL.

CUPTI numbers each call of the driver, and the record of a kernel has the number of its call. A
record of each call, which CUPTI can make as well (CUPTI_ACTIVITY_KIND_DRIVER), costs 0.6 to 2 ms of
a training step of 8 ms on an H200, even of one function alone: torch calls the driver many times
more often than it launches kernels. The callback is called for one function only. It runs in the
middle of a launch of whichever thread, and so is machine code (`cuda.activity_buffers`).

Invariants: a note is of a call that succeeded; a note that nobody took in time is overwritten by
later ones, and none comes half written.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

# In the tenth of a second between two rounds there are some 40,000 launches at most.
MOST_NOTES = 1 << 16
_CALL_BYTES = 24
# A slot: the number of its note from 1 on, 0 while it is written; then the note as `CALL_FIELDS`
# has it: when the call returned, its thread, its number, whether it was captured.
_STATE = """
@slots = internal global [{most} x [4 x i64]] zeroinitializer
@made = internal global i64 0
@taken = internal global i64 0

define internal void @now(ptr %time) {{
  call i32 {clock_gettime}(i32 0, ptr %time)
  ret void
}}

define internal ptr @slot(i64 %number) {{
  %place = and i64 %number, {mask}
  %slot = getelementptr [4 x i64], ptr @slots, i64 %place
  ret ptr %slot
}}

define internal i64 @is_captured(ptr %stream) {{
begin:
  %has_question = icmp ne ptr {is_capturing}, null
  br i1 %has_question, label %ask, label %no
ask:
  %answer = alloca i32
  store i32 0, ptr %answer
  %status = call i32 {is_capturing}(ptr %stream, ptr %answer)
  %is_told = icmp eq i32 %status, 0
  %state = load i32, ptr %answer
  %is_some = icmp ne i32 %state, 0
  %is_captured = and i1 %is_told, %is_some
  %found = zext i1 %is_captured to i64
  ret i64 %found
no:
  ret i64 0
}}

define internal i32 @thread() {{
begin:
  %kept = call i64 {pthread_getspecific}(i32 {thread_key})
  %is_kept = icmp ne i64 %kept, 0
  br i1 %is_kept, label %known, label %ask
ask:
  %asked = call i64 {PyThread_get_thread_native_id}()
  call i32 {pthread_setspecific}(i32 {thread_key}, i64 %asked)
  br label %known
known:
  %id = phi i64 [ %kept, %begin ], [ %asked, %ask ]
  %short = trunc i64 %id to i32
  ret i32 %short
}}
"""
# CUpti_CallbackFunc and CUpti_CallbackData of cupti_callbacks.h, cuLaunchKernelEx_params of
# generated_cuda_meta.h, whose first field points to a CUlaunchConfig (cuda.h).
_CALLED = """
define void @called(ptr %own, i32 %domain, i32 %function, ptr %data) {
  %site = load i32, ptr %data
  %is_exit = icmp eq i32 %site, 1
  br i1 %is_exit, label %exit, label %end
exit:
  %result_in = getelementptr i8, ptr %data, i64 24
  %result_at = load ptr, ptr %result_in
  %result = load i32, ptr %result_at
  %is_done = icmp eq i32 %result, 0
  br i1 %is_done, label %note, label %end
note:
  %time = alloca [2 x i64]
  call void @now(ptr %time)
  %seconds = load i64, ptr %time
  %rest_at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest_at
  %whole = mul i64 %seconds, 1000000000
  %ns = add i64 %whole, %rest
  %thread = call i32 @thread()
  %correlation_at = getelementptr i8, ptr %data, i64 64
  %correlation = load i32, ptr %correlation_at
  %parameters_in = getelementptr i8, ptr %data, i64 16
  %parameters = load ptr, ptr %parameters_in
  %config = load ptr, ptr %parameters
  %stream_in = getelementptr i8, ptr %config, i64 32
  %stream = load ptr, ptr %stream_in
  %is_captured = call i64 @is_captured(ptr %stream)
  %number = atomicrmw add ptr @made, i64 1 monotonic
  %slot = call ptr @slot(i64 %number)
  %ns_at = getelementptr i8, ptr %slot, i64 8
  %thread_at = getelementptr i8, ptr %slot, i64 16
  %call_at = getelementptr i8, ptr %slot, i64 20
  %captured_at = getelementptr i8, ptr %slot, i64 24
  store atomic i64 0, ptr %slot monotonic, align 8
  fence release
  store atomic i64 %ns, ptr %ns_at monotonic, align 8
  store atomic i32 %thread, ptr %thread_at monotonic, align 4
  store atomic i32 %correlation, ptr %call_at monotonic, align 4
  store atomic i64 %is_captured, ptr %captured_at monotonic, align 8
  %after = add i64 %number, 1
  store atomic i64 %after, ptr %slot release, align 8
  br label %end
end:
  ret void
}
"""
_TAKE = """
define i64 @take(ptr %target, i64 %most) {{
begin:
  %before = load i64, ptr @taken
  %all = load atomic i64, ptr @made acquire, align 8
  %oldest = sub i64 %all, {most}
  %is_behind = icmp slt i64 %before, %oldest
  %first = select i1 %is_behind, i64 %oldest, i64 %before
  br label %look
look:
  %number = phi i64 [ %first, %begin ], [ %next, %went_on ]
  %count = phi i64 [ 0, %begin ], [ %counted, %went_on ]
  %is_made = icmp slt i64 %number, %all
  %has_room = icmp slt i64 %count, %most
  %is_one = and i1 %is_made, %has_room
  br i1 %is_one, label %one, label %done
one:
  %next = add i64 %number, 1
  %slot = call ptr @slot(i64 %number)
  %found = load atomic i64, ptr %slot acquire, align 8
  %is_written = icmp eq i64 %found, %next
  br i1 %is_written, label %copy, label %missing
copy:
  %ns_at = getelementptr i8, ptr %slot, i64 8
  %rest_at = getelementptr i8, ptr %slot, i64 16
  %ns = load atomic i64, ptr %ns_at monotonic, align 8
  %rest = load atomic i64, ptr %rest_at monotonic, align 8
  %captured_at = getelementptr i8, ptr %slot, i64 24
  %is_captured = load atomic i64, ptr %captured_at monotonic, align 8
  fence acquire
  %again = load atomic i64, ptr %slot monotonic, align 8
  %is_same = icmp eq i64 %again, %next
  %to = getelementptr [3 x i64], ptr %target, i64 %count
  store i64 %ns, ptr %to
  %to_rest = getelementptr i64, ptr %to, i64 1
  store i64 %rest, ptr %to_rest
  %to_captured = getelementptr i64, ptr %to, i64 2
  store i64 %is_captured, ptr %to_captured
  %one_more = zext i1 %is_same to i64
  br label %went_on
missing:
  ; One that is overwritten is gone; one that is not written yet is waited for, with those behind.
  %now = load atomic i64, ptr @made acquire, align 8
  %lag = sub i64 %now, %number
  %is_gone = icmp sge i64 %lag, {most}
  br i1 %is_gone, label %went_on, label %done
went_on:
  %more = phi i64 [ %one_more, %copy ], [ 0, %missing ]
  %counted = add i64 %count, %more
  br label %look
done:
  store i64 %number, ptr @taken
  ret i64 %count
}}
"""


class _Code(NamedTuple):
    """Addresses, and the object that keeps the code there."""

    called: int
    take: Callable[[ctypes.Array[ctypes.c_char], int], int]
    engine: object


class LaunchCalls:
    """The notes of this process; one thread takes them at a time.

    Args:
        process: the number of the process.
        is_capturing: address of cuStreamIsCapturing; 0 notes no call as captured.
        most: the number of notes that there is room for, a power of two.

    Attributes:
        called: address of the CUpti_CallbackFunc.
    """

    def __init__(self, process: int, is_capturing: int, most: int = MOST_NOTES) -> None:
        assert most & (most - 1) == 0
        self._most = most
        self._code = _compiled(thread_key(process), is_capturing, most)
        self._taken = ctypes.create_string_buffer(_CALL_BYTES * most)
        self.called = self._code.called

    def take(self) -> bytes:
        """Return the notes since the last call, by their numbers, packed by `CALL_FIELDS`."""
        count = self._code.take(self._taken, self._most)
        return ctypes.string_at(self._taken, _CALL_BYTES * count)


def _compiled(key: int, is_capturing: int, most: int) -> _Code:
    # LLVM takes a tenth of a second, which only processes that use a GPU pay.
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    names = {
        "most": most,
        "mask": most - 1,
        "thread_key": key,
        "is_capturing": f"inttoptr (i64 {is_capturing} to ptr)",
        **_functions(),
    }
    module = llvm.parse_assembly(_STATE.format(**names) + _CALLED + _TAKE.format(**names))
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    # With the GIL: it takes less than to give it up, for which the script would have to wait.
    take = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_char_p, ctypes.c_int64)
    find = engine.get_function_address
    return _Code(find("called"), take(find("take")), engine)


def _functions() -> dict[str, str]:
    """Return, by name, the addresses of the functions that the code calls, as LLVM text."""
    system, python = ctypes.CDLL(None), ctypes.pythonapi
    found = {
        "clock_gettime": system.clock_gettime,
        "pthread_getspecific": system.pthread_getspecific,
        "pthread_setspecific": system.pthread_setspecific,
        "PyThread_get_thread_native_id": python.PyThread_get_thread_native_id,
    }
    addresses = {name: ctypes.cast(function, ctypes.c_void_p) for name, function in found.items()}
    return {name: f"inttoptr (i64 {at.value} to ptr)" for name, at in addresses.items()}


@cache
def thread_key(process: int) -> int:
    """The pthread key by which each thread of a process keeps its native id.

    A forked child's threads have other ids.
    """
    key = ctypes.c_uint()
    create = ctypes.CDLL(None).pthread_key_create
    status = create(ctypes.byref(key), None)
    if status:
        raise OSError(status, os.strerror(status))
    return key.value
