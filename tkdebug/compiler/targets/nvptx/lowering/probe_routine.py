"""The function of a checked kernel that threads call for accesses which go astray.

It reports a thread's bad elements and touches the good ones, one by one. All accesses of a kernel
share it: written out at each of them, it took several times the kernel's own code. Its registers
add to those of its callers, so it has few: arguments and sums stay in the thread's local memory,
and are read and written each time.

Sources: PTX ISA, "Data Movement and Conversion Instructions: ld, st", "Parallel Synchronization and
Communication Instructions: atom, red", and "Memory Consistency Model" for the lock.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum, IntEnum
from typing import Final, assert_never

from tkdebug.compiler.probes import table

NAME: Final = "tkdebug_probe"
# The part of it that reports, for what is no access.
REPORT_NAME: Final = "tkdebug_report"
# The address of a group whose mask is false; no element of several bytes lies there.
MASKED_OFF: Final = -1
# The place of a register that holds a copy of another.
COPY: Final = -1


class Mode(IntEnum):
    """What the routine does at good elements, times 16; the size of an element is added.

    Attributes:
        LOAD: reads them into the array of values.
        STORE: writes them from there.
        ASK: says there, in a byte for each, which they are.
    """

    LOAD = 0
    STORE = 16
    ASK = 32


class Field(Enum):
    """What the routine's frame in local memory holds: offset in bytes, LLVM type.

    Attributes:
        SLOT: address of the site's slot.
        TIME: when the program is here.
        FIRST: address of the tensor's first byte.
        LIMIT: below which distance from there an element may begin.
        POINTERS: where the address of each group's first element lies, i64 each.
        PLACES: where its row-major place in the tile lies, i32 each.
        VALUES: where the values lie.
        AT: address of the least bad element.
        ELEMENT: its place.
        COUNT: bad elements.
        MASKED: elements that the mask leaves out.
        GROUPS: how many there are.
        ELEMS: elements of a group.
        STEP: by how many places these differ.
        BYTES: of an element.
        ACTION: mode and bytes.
        WIDTH: bytes of a value.
        COMPLETE: whether all threads report where one of them has bad elements.
    """

    SLOT = 0, "i64"
    TIME = 8, "i64"
    FIRST = 16, "i64"
    LIMIT = 24, "i64"
    POINTERS = 32, "i64"
    PLACES = 40, "i64"
    VALUES = 48, "i64"
    AT = 56, "i64"
    ELEMENT = 64, "i32"
    COUNT = 68, "i32"
    MASKED = 72, "i32"
    GROUPS = 76, "i32"
    ELEMS = 80, "i32"
    STEP = 84, "i32"
    BYTES = 88, "i32"
    ACTION = 92, "i32"
    WIDTH = 96, "i32"
    COMPLETE = 100, "i32"

    @property
    def offset(self) -> int:
        """In the frame, in bytes."""
        return self.value[0]

    @property
    def type(self) -> str:
        """LLVM's."""
        return self.value[1]

    @property
    def bytes(self) -> int:
        """Its size, and alignment."""
        return int(self.type[1:]) // 8


FRAME_BYTES: Final = 112
# Takes the frame, and whether the thread acts for its elements.
PARAMETERS: Final = ("ptr", "i1")

# A lock that is never given back was not free before the launch; nobody waits for it for ever.
_MOST_TRIES: Final = 1 << 24

# $0 slot, $1 program, $2 frame.
# One lane reports for all that are here from the same site at the same time, the one with their
# least element: lanes that had nothing to report may have gone on, and be here from a later site.
# It looks whether its report matters each time before it tries to take the lock: where all programs
# have faults, most find a lesser program there, and never take it. What is done with the lock is
# predicated and branches nowhere, so the lane gives it back in the same turn.
_REPORT = f"""{{
.reg .pred more, mine, less, same, first, lead;
.reg .b64 p, t, n;
.reg .b32 l, e, m, tries, active, count, least;
mov.u32 tries, 0;
ld.u64 n, [$2+{Field.TIME.offset}];
activemask.b32 active;
match.any.sync.b64 l, $0, active;
match.any.sync.b64 e, n, active;
and.b32 active, l, e;
ld.u32 count, [$2+{Field.COUNT.offset}];
redux.sync.add.u32 count, count, active;
ld.u32 m, [$2+{Field.MASKED.offset}];
redux.sync.add.u32 m, m, active;
ld.u32 e, [$2+{Field.ELEMENT.offset}];
redux.sync.min.u32 least, e, active;
setp.eq.u32 lead, e, least;
vote.sync.ballot.b32 l, lead, active;
brev.b32 l, l;
clz.b32 l, l;
mov.u32 e, %laneid;
setp.eq.u32 lead, e, l;
cvt.u64.u32 p, count;
@lead red.relaxed.gpu.global.add.u64 [$0+{table.COUNT}], p;
PROBE_AGAIN:
ld.acquire.gpu.global.u64 p, [$0+{table.PROGRAM}];
ld.acquire.gpu.global.u64 t, [$0+{table.TIME}];
setp.gt.u64 less, p, $1;
setp.eq.or.u64 more, p, 0, less;
setp.ge.u64 same, t, n;
setp.eq.and.u64 same, p, $1, same;
or.pred more, more, same;
and.pred more, more, lead;
mov.u32 l, 1;
@more atom.acquire.gpu.global.cas.b32 l, [$0+{table.LOCK}], 0, 1;
setp.eq.and.u32 mine, l, 0, more;
mov.u64 p, 0;
mov.u64 t, 0;
@mine ld.relaxed.gpu.global.u64 p, [$0+{table.PROGRAM}];
@mine ld.relaxed.gpu.global.u64 t, [$0+{table.TIME}];
setp.eq.u64 first, p, 0;
setp.gt.or.u64 first, p, $1, first;
setp.eq.u64 same, p, $1;
setp.gt.and.u64 less, t, n, same;
or.pred first, first, less;
setp.eq.and.u64 same, t, n, same;
and.pred first, first, mine;
and.pred same, same, mine;
@first st.relaxed.gpu.global.u64 [$0+{table.TIME}], n;
@first st.relaxed.gpu.global.u32 [$0+{table.ELEMENT}], -1;
@first st.relaxed.gpu.global.u32 [$0+{table.BAD}], 0;
@first st.relaxed.gpu.global.u32 [$0+{table.MASKED}], 0;
ld.u32 e, [$2+{Field.COMPLETE.offset}];
@first st.relaxed.gpu.global.u32 [$0+{table.COMPLETE}], e;
@first st.release.gpu.global.u64 [$0+{table.PROGRAM}], $1;
or.pred same, same, first;
mov.u32 e, 0;
@same ld.relaxed.gpu.global.u32 e, [$0+{table.BAD}];
add.u32 e, e, count;
@same st.relaxed.gpu.global.u32 [$0+{table.BAD}], e;
@same ld.relaxed.gpu.global.u32 e, [$0+{table.MASKED}];
add.u32 e, e, m;
@same st.relaxed.gpu.global.u32 [$0+{table.MASKED}], e;
@same ld.relaxed.gpu.global.u32 e, [$0+{table.ELEMENT}];
setp.lt.and.u32 same, least, e, same;
ld.u64 t, [$2+{Field.AT.offset}];
@same st.relaxed.gpu.global.u32 [$0+{table.ELEMENT}], least;
@same st.relaxed.gpu.global.u64 [$0+{table.PAYLOAD}], t;
@mine st.release.gpu.global.u32 [$0+{table.LOCK}], 0;
setp.ne.and.u32 more, l, 0, more;
add.u32 tries, tries, 1;
setp.lt.and.u32 more, tries, {_MOST_TRIES}, more;
@more nanosleep.u32 100;
@more bra PROBE_AGAIN;
}}"""


def _get(name: str, field: Field) -> str:
    """Instructions that read a field into `%name`."""
    return (
        f"  %{name}.at = getelementptr i8, ptr %frame, i32 {field.offset}\n"
        f"  %{name} = load volatile {field.type}, ptr %{name}.at, align {field.bytes}\n"
    )


def _put(name: str, field: Field) -> str:
    """Instructions that write `%name` into a field."""
    return (
        f"  %{name}.to = getelementptr i8, ptr %frame, i32 {field.offset}\n"
        f"  store volatile {field.type} %{name}, ptr %{name}.to, align {field.bytes}\n"
    )


def _entry(array: str, field: Field, type_: str, tag: str) -> str:
    """Instructions that read entry `%g` of an array into `%array.tag`."""
    return (
        _get(f"{array}.base.{tag}", field)
        + f"  %{array}.first.{tag} = inttoptr i64 %{array}.base.{tag} to ptr\n"
        + f"  %{array}.there.{tag} = getelementptr {type_}, ptr %{array}.first.{tag}, i32 %g\n"
        + f"  %{array}.{tag} = load volatile {type_}, ptr %{array}.there.{tag}, "
        f"align {int(type_[1:]) // 8}\n"
    )


def _touch(action: int) -> str:
    """The block that does one thing to a good element."""
    mode, size = Mode(action & ~15), action & 15
    type_, there, value = f"i{8 * size}", f"ptr addrspace(1) %there, align {size}", "ptr %value"
    moved = f"{type_} %x{action}"
    match mode:
        case Mode.LOAD:
            read, write = f"{type_}, {there}", f"{moved}, {value}, align {size}"
        case Mode.STORE:
            read, write = f"{type_}, {value}, align {size}", f"{moved}, {there}"
        case Mode.ASK:
            read, write = "", f"i8 1, {value}, align 1"
        case _:
            assert_never(mode)
    load = f"  %x{action} = load volatile {read}\n" if read else ""
    return f"touch{action}:\n{load}  store volatile {write}\n  br label %next\n"


REGISTERS: Final = tuple(
    f"llvm.nvvm.read.ptx.sreg.{name}"
    for name in ("ctaid.x", "ctaid.y", "ctaid.z", "nctaid.x", "nctaid.y")
)


def definition(actions: Collection[int]) -> str:
    """LLVM IR of the routine; `actions` are modes and sizes of elements that it is called with."""
    cases = " ".join(f"i32 {action}, label %touch{action}" for action in sorted(actions))
    return (
        f"define internal void @{NAME}(ptr %frame, i1 %acting) "
        "noinline nounwind cold minsize optsize {\n"
        "entry:\n  br label %group\n"
        "group:\n  %g = phi i32 [ 0, %entry ], [ %g.next, %group.end ]\n"
        + _entry("pointer", Field.POINTERS, "i64", "a")
        + f"  %is.masked = icmp eq i64 %pointer.a, {MASKED_OFF}\n"
        "  br i1 %is.masked, label %masked, label %element\n"
        "masked:\n"
        + _entry("place", Field.PLACES, "i32", "b")
        + f"  %is.copy = icmp eq i32 %place.b, {COPY}\n"
        "  br i1 %is.copy, label %group.end, label %left.out\n"
        "left.out:\n"
        + _get("masked.old", Field.MASKED)
        + _get("masked.elems", Field.ELEMS)
        + "  %masked.new = add i32 %masked.old, %masked.elems\n"
        + _put("masked.new", Field.MASKED)
        + "  br label %group.end\n"
        "element:\n  %e = phi i32 [ 0, %group ], [ %e.next, %next ]\n"
        + _entry("pointer", Field.POINTERS, "i64", "b")
        + _get("bytes", Field.BYTES)
        + "  %distance = mul i32 %e, %bytes\n"
        "  %distance.wide = zext i32 %distance to i64\n"
        "  %address = add i64 %pointer.b, %distance.wide\n"
        + _get("first", Field.FIRST)
        + "  %offset = sub i64 %address, %first\n"
        + _get("limit", Field.LIMIT)
        + "  %good = icmp ult i64 %offset, %limit\n"
        "  br i1 %good, label %touch, label %bad\n"
        "touch:\n"
        "  %there = inttoptr i64 %address to ptr addrspace(1)\n"
        + _get("elems.touch", Field.ELEMS)
        + _get("width", Field.WIDTH)
        + _get("values", Field.VALUES)
        + "  %register = mul i32 %g, %elems.touch\n"
        "  %index = add i32 %register, %e\n"
        "  %value.offset = mul i32 %index, %width\n"
        "  %values.first = inttoptr i64 %values to ptr\n"
        "  %value = getelementptr i8, ptr %values.first, i32 %value.offset\n"
        + _get("action", Field.ACTION)
        + f"  switch i32 %action, label %next [ {cases} ]\n"
        + "".join(map(_touch, sorted(actions)))
        + "bad:\n"
        + _entry("place", Field.PLACES, "i32", "a")
        + f"  %counts = icmp ne i32 %place.a, {COPY}\n"
        "  br i1 %counts, label %count, label %next\n"
        "count:\n"
        + _get("count.old", Field.COUNT)
        + "  %count.new = add i32 %count.old, 1\n"
        + _put("count.new", Field.COUNT)
        + _get("step", Field.STEP)
        + "  %steps = mul i32 %e, %step\n"
        "  %place.e = add i32 %place.a, %steps\n"
        + _get("element.old", Field.ELEMENT)
        + "  %lower = icmp ult i32 %place.e, %element.old\n"
        "  br i1 %lower, label %least, label %next\n"
        "least:\n"
        + _put("place.e", Field.ELEMENT)
        + _put("address", Field.AT)
        + "  br label %next\n"
        "next:\n  %e.next = add i32 %e, 1\n"
        + _get("elems.next", Field.ELEMS)
        + "  %again = icmp ult i32 %e.next, %elems.next\n"
        "  br i1 %again, label %element, label %group.end\n"
        "group.end:\n  %g.next = add i32 %g, 1\n"
        + _get("groups", Field.GROUPS)
        + "  %more = icmp ult i32 %g.next, %groups\n"
        "  br i1 %more, label %group, label %end\n"
        "end:\n"
        + _get("found.count", Field.COUNT)
        # In a block where one thread has bad elements, others have masked ones to tell of.
        + _get("found.masked", Field.MASKED)
        + _get("complete", Field.COMPLETE)
        + "  %told = mul i32 %found.masked, %complete\n"
        "  %some = or i32 %found.count, %told\n"
        "  %found = icmp ne i32 %some, 0\n"
        "  %reports = and i1 %found, %acting\n"
        "  br i1 %reports, label %report, label %leave\n"
        f"report:\n  call void @{REPORT_NAME}(ptr %frame)\n  br label %leave\n"
        "leave:\n  ret void\n}"
    )


def report_definition() -> str:
    """LLVM IR of the part that reports."""
    report = _REPORT.replace("\n", "\\0A")
    return (
        f"define internal void @{REPORT_NAME}(ptr %frame) noinline nounwind cold minsize optsize "
        "{\nentry:\n"
        + _program()
        + _get("slot", Field.SLOT)
        + f'  call void asm sideeffect "{report}", '
        '"l,l,l,~{memory}"(i64 %slot, i64 %program, ptr %frame)\n'
        "  ret void\n}"
    )


def _program() -> str:
    """Instructions that compute the program's number plus one."""
    lines = []
    for register in REGISTERS:
        name = register.removeprefix("llvm.nvvm.read.ptx.sreg.")
        lines.append(f"  %{name}.narrow = call i32 @{register}()")
        lines.append(f"  %{name} = zext i32 %{name}.narrow to i64")
    return "\n".join(
        (
            *lines,
            "  %layers = mul i64 %ctaid.z, %nctaid.y",
            "  %row = add i64 %layers, %ctaid.y",
            "  %rows = mul i64 %row, %nctaid.x",
            "  %linear = add i64 %rows, %ctaid.x",
            "  %program = add i64 %linear, 1",
            "",
        )
    )
