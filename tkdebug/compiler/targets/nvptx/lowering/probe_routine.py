"""The function of a checked kernel that threads call for accesses which go astray.

It reports a thread's bad elements and touches the good ones, one by one. All accesses of a kernel
share it: written out at each of them, it took several times the kernel's own code, and the
registers of the whole kernel. Arguments that are arrays lie in the thread's local memory, so that
loops can walk them.

Sources: PTX ISA, "Data Movement and Conversion Instructions: ld, st", "Parallel Synchronization and
Communication Instructions: atom, red", and "Memory Consistency Model" for the lock.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from tkdebug.compiler.probes import table

NAME: Final = "tkdebug_probe"
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


# $0 slot, $1 program, $2 time, $3 payload, $4 count, $5 element, $6 masked.
# All of an iteration's instructions are predicated, none branches: so a lane that has the lock
# gives it back before any other lane of its warp looks again.
_REPORT = f"""{{
.reg .pred more, mine, less, same, first, least;
.reg .b64 p, t, n;
.reg .b32 l, e, b, m;
cvt.u64.u32 n, $4;
red.relaxed.gpu.global.add.u64 [$0+{table.COUNT}], n;
ld.acquire.gpu.global.u64 p, [$0+{table.PROGRAM}];
ld.acquire.gpu.global.u64 t, [$0+{table.TIME}];
setp.gt.u64 less, p, $1;
setp.eq.or.u64 more, p, 0, less;
setp.ge.u64 least, t, $2;
setp.eq.and.u64 same, p, $1, least;
or.pred more, more, same;
PROBE_AGAIN:
mov.u32 l, 1;
@more atom.acquire.gpu.global.cas.b32 l, [$0+{table.LOCK}], 0, 1;
setp.eq.and.u32 mine, l, 0, more;
mov.u64 p, 0;
mov.u64 t, 0;
mov.u32 e, 0;
mov.u32 b, 0;
mov.u32 m, 0;
@mine ld.relaxed.gpu.global.u64 p, [$0+{table.PROGRAM}];
@mine ld.relaxed.gpu.global.u64 t, [$0+{table.TIME}];
@mine ld.relaxed.gpu.global.u32 e, [$0+{table.ELEMENT}];
@mine ld.relaxed.gpu.global.u32 b, [$0+{table.BAD}];
@mine ld.relaxed.gpu.global.u32 m, [$0+{table.MASKED}];
setp.eq.u64 first, p, 0;
setp.gt.or.u64 first, p, $1, first;
setp.eq.u64 same, p, $1;
setp.gt.and.u64 less, t, $2, same;
or.pred first, first, less;
setp.eq.and.u64 same, t, $2, same;
@first mov.u32 b, 0;
@first mov.u32 m, 0;
add.u32 b, b, $4;
add.u32 m, m, $6;
setp.lt.and.u32 least, $5, e, same;
or.pred least, least, first;
or.pred same, same, first;
and.pred same, same, mine;
and.pred first, first, mine;
and.pred least, least, mine;
@first st.relaxed.gpu.global.u64 [$0+{table.PROGRAM}], $1;
@first st.relaxed.gpu.global.u64 [$0+{table.TIME}], $2;
@least st.relaxed.gpu.global.u32 [$0+{table.ELEMENT}], $5;
@least st.relaxed.gpu.global.u64 [$0+{table.PAYLOAD}], $3;
@same st.relaxed.gpu.global.u32 [$0+{table.BAD}], b;
@same st.relaxed.gpu.global.u32 [$0+{table.MASKED}], m;
@mine st.release.gpu.global.u32 [$0+{table.LOCK}], 0;
setp.ne.and.u32 more, l, 0, more;
@more bra PROBE_AGAIN;
}}"""

PARAMETERS: Final = (
    "ptr addrspace(1)",  # slot
    "i64",  # time
    "i64",  # first byte of the tensor
    "i64",  # bytes of the tensor
    "ptr",  # the address of each group's first element, i64
    "ptr",  # its row-major place in the tile, i32
    "ptr",  # the values
    "i32",  # groups
    "i32",  # elements of a group
    "i32",  # by how many places these differ
    "i32",  # bytes of an element
    "i32",  # mode
    "i1",  # whether the thread acts for its elements
)
_NAMES = (
    "slot", "time", "first", "size", "pointers", "places", "values",
    "groups", "elems", "step", "bytes", "mode", "acting",
)  # fmt: skip


def _loads_and_stores() -> str:
    blocks = []
    for bytes_ in (1, 2, 4, 8):
        type_ = f"i{8 * bytes_}"
        blocks.append(f"""
load{bytes_}:
  %x{bytes_} = load volatile {type_}, ptr addrspace(1) %there, align {bytes_}
  store {type_} %x{bytes_}, ptr %value, align {bytes_}
  br label %next
store{bytes_}:
  %y{bytes_} = load {type_}, ptr %value, align {bytes_}
  store volatile {type_} %y{bytes_}, ptr addrspace(1) %there, align {bytes_}
  br label %next""")
    return "".join(blocks)


def _cases() -> str:
    loads = [f"i32 {Mode.LOAD + size}, label %load{size}" for size in (1, 2, 4, 8)]
    stores = [f"i32 {Mode.STORE + size}, label %store{size}" for size in (1, 2, 4, 8)]
    asks = [f"i32 {Mode.ASK + size}, label %ask" for size in (1, 2, 4, 8)]
    return " ".join((*loads, *stores, *asks))


def definition() -> str:
    """LLVM IR of the routine."""
    parameters = ", ".join(
        f"{type_} %{name}" for type_, name in zip(PARAMETERS, _NAMES, strict=True)
    )
    report = _REPORT.replace("\n", "\\0A")
    return f"""define internal void @{NAME}({parameters}) noinline nounwind cold minsize optsize {{
entry:
  %bytes.wide = zext i32 %bytes to i64
  %last = sub i64 %size, %bytes.wide
  %fits = icmp sge i64 %last, 0
  %places.of = add i64 %last, 1
  %limit = select i1 %fits, i64 %places.of, i64 0
  %code = add i32 %mode, %bytes
  %stores = icmp eq i32 %mode, {Mode.STORE}
  %idle = xor i1 %acting, true
  %silent = and i1 %stores, %idle
  %action = select i1 %silent, i32 -1, i32 %code
  %asks = icmp eq i32 %mode, {Mode.ASK}
  %width = select i1 %asks, i32 1, i32 %bytes
  br label %group
group:
  %g = phi i32 [ 0, %entry ], [ %g.next, %group.end ]
  %count = phi i32 [ 0, %entry ], [ %count.after, %group.end ]
  %masked = phi i32 [ 0, %entry ], [ %masked.after, %group.end ]
  %best = phi i32 [ -1, %entry ], [ %best.after, %group.end ]
  %at = phi i64 [ 0, %entry ], [ %at.after, %group.end ]
  %pointer.place = getelementptr i64, ptr %pointers, i32 %g
  %pointer = load i64, ptr %pointer.place, align 8
  %first.place = getelementptr i32, ptr %places, i32 %g
  %place = load i32, ptr %first.place, align 4
  %counts = icmp ne i32 %place, {COPY}
  %register = mul i32 %g, %elems
  %is.masked = icmp eq i64 %pointer, {MASKED_OFF}
  %left.out = add i32 %masked, %elems
  %masked.now = select i1 %is.masked, i32 %left.out, i32 %masked
  br i1 %is.masked, label %group.end, label %element
element:
  %e = phi i32 [ 0, %group ], [ %e.next, %next ]
  %count.e = phi i32 [ %count, %group ], [ %count.next, %next ]
  %best.e = phi i32 [ %best, %group ], [ %best.next, %next ]
  %at.e = phi i64 [ %at, %group ], [ %at.next, %next ]
  %distance = mul i32 %e, %bytes
  %distance.wide = zext i32 %distance to i64
  %address = add i64 %pointer, %distance.wide
  %offset = sub i64 %address, %first
  %good = icmp ult i64 %offset, %limit
  br i1 %good, label %touch, label %bad
touch:
  %there = inttoptr i64 %address to ptr addrspace(1)
  %index = add i32 %register, %e
  %value.offset = mul i32 %index, %width
  %value = getelementptr i8, ptr %values, i32 %value.offset
  switch i32 %action, label %next [ {_cases()} ]{_loads_and_stores()}
ask:
  store i8 1, ptr %value, align 1
  br label %next
bad:
  %one = zext i1 %counts to i32
  %count.bad = add i32 %count.e, %one
  %steps = mul i32 %e, %step
  %place.e = add i32 %place, %steps
  %lower = icmp ult i32 %place.e, %best.e
  %better = and i1 %lower, %counts
  %best.bad = select i1 %better, i32 %place.e, i32 %best.e
  %at.bad = select i1 %better, i64 %address, i64 %at.e
  br label %next
next:
  %count.next = phi i32 [ %count.bad, %bad ], {_kept("%count.e")}
  %best.next = phi i32 [ %best.bad, %bad ], {_kept("%best.e")}
  %at.next = phi i64 [ %at.bad, %bad ], {_kept("%at.e")}
  %e.next = add i32 %e, 1
  %again = icmp ult i32 %e.next, %elems
  br i1 %again, label %element, label %group.end
group.end:
  %count.after = phi i32 [ %count, %group ], [ %count.next, %next ]
  %masked.after = phi i32 [ %masked.now, %group ], [ %masked.now, %next ]
  %best.after = phi i32 [ %best, %group ], [ %best.next, %next ]
  %at.after = phi i64 [ %at, %group ], [ %at.next, %next ]
  %g.next = add i32 %g, 1
  %more = icmp ult i32 %g.next, %groups
  br i1 %more, label %group, label %end
end:
  %found = icmp ne i32 %count.after, 0
  %reports = and i1 %found, %acting
  br i1 %reports, label %report, label %leave
report:
{_program()}
  call void asm sideeffect "{report}", "l,l,l,l,r,r,r,~{{memory}}"(ptr addrspace(1) %slot, \
i64 %program, i64 %time, i64 %at.after, i32 %count.after, i32 %best.after, i32 %masked.after)
  br label %leave
leave:
  ret void
}}"""


def _kept(value: str) -> str:
    sources = ["touch", "ask", *(f"{what}{n}" for n in (1, 2, 4, 8) for what in ("load", "store"))]
    return ", ".join(f"[ {value}, %{source} ]" for source in sources)


REGISTERS: Final = tuple(
    f"llvm.nvvm.read.ptx.sreg.{name}"
    for name in ("ctaid.x", "ctaid.y", "ctaid.z", "nctaid.x", "nctaid.y")
)


def _program() -> str:
    """The program's number plus one."""
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
        )
    )
