"""LLVM modules of one kernel, by hand, as the lowering writes them: `!dbg` line = op id."""

from __future__ import annotations

import re

VECTOR_ADD_OPS = {
    10: "program id",
    11: "thread",
    12: "offset",
    13: "address",
    14: "load x",
    15: "load y",
    16: "add",
    17: "store",
    18: "return",
}


def module(body: str, declarations: str = "", parameters: str = "ptr addrspace(1) %x") -> str:
    """A kernel `k`; every `!dbg !N` in `body` is given a location of line N."""
    ops = sorted({int(number) for number in re.findall(r"!dbg !(\d+)", body)})
    locations = "\n".join(f"!{op} = !DILocation(line: {op}, column: 1, scope: !4)" for op in ops)
    return f"""
{declarations}
@shared = external addrspace(3) global [0 x i8], align 1024
define ptx_kernel void @k({parameters}) #0 !dbg !4 {{
{body}
}}
attributes #0 = {{ nounwind "nvvm.reqntid"="128,1,1" }}
attributes #1 = {{ convergent nounwind }}
!llvm.dbg.cu = !{{!0}}
!llvm.module.flags = !{{!1, !2}}
!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !3, producer: "tkdebug",
  isOptimized: true, runtimeVersion: 0, emissionKind: DebugDirectivesOnly)
!1 = !{{i32 2, !"Debug Info Version", i32 3}}
!2 = !{{i32 4, !"nvvm-reflect-ftz", i32 0}}
!3 = !DIFile(filename: "ops", directory: "")
!4 = distinct !DISubprogram(name: "k", file: !3, line: 1, type: !5, unit: !0,
  spFlags: DISPFlagDefinition | DISPFlagOptimized)
!5 = !DISubroutineType(types: !{{null}})
{locations}
"""


VECTOR_ADD = module(
    """
  %block = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x(), !dbg !10
  %thread = call i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !11
  %start = shl i32 %block, 9, !dbg !12
  %mine = shl i32 %thread, 2, !dbg !12
  %i = add i32 %start, %mine, !dbg !12
  %px = getelementptr float, ptr addrspace(1) %x, i32 %i, !dbg !13
  %py = getelementptr float, ptr addrspace(1) %y, i32 %i, !dbg !13
  %pz = getelementptr float, ptr addrspace(1) %z, i32 %i, !dbg !13
  %vx = load <4 x float>, ptr addrspace(1) %px, align 16, !dbg !14
  %vy = load <4 x float>, ptr addrspace(1) %py, align 16, !dbg !15
  %vz = fadd contract <4 x float> %vx, %vy, !dbg !16
  store <4 x float> %vz, ptr addrspace(1) %pz, align 16, !dbg !17
  ret void, !dbg !18""",
    "declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\ndeclare i32 @llvm.nvvm.read.ptx.sreg.tid.x()",
    "ptr addrspace(1) align 16 %x, ptr addrspace(1) align 16 %y, ptr addrspace(1) align 16 %z",
)


def call(name: str, type_: str = "float") -> str:
    """A kernel that loads x (op 10), calls `name` on it (op 11) and stores the result (op 12)."""
    return module(
        f"""
  %v = load {type_}, ptr addrspace(1) %x, !dbg !10
  %r = call {type_} @{name}({type_} %v), !dbg !11
  store {type_} %r, ptr addrspace(1) %x, !dbg !12
  ret void, !dbg !13""",
        f"declare {type_} @{name}({type_})",
    )


def assembly(template: str, constraints: str) -> str:
    """A kernel that loads x (op 10), runs inline PTX on it (op 11) and stores (op 12)."""
    return module(
        f"""
  %v = load float, ptr addrspace(1) %x, !dbg !10
  %r = call float asm "{template}", "{constraints}"(float %v), !dbg !11
  store float %r, ptr addrspace(1) %x, !dbg !12
  ret void, !dbg !13"""
    )


def many_registers(count: int) -> str:
    """A kernel that holds `count` loaded values (op 11) before it stores the first (op 12)."""
    lines = []
    for i in range(count):
        lines += [
            f"  %p{i} = getelementptr float, ptr addrspace(1) %x, i64 {i * 1000}, !dbg !10",
            f"  %v{i} = load volatile float, ptr addrspace(1) %p{i}, !dbg !11",
        ]
    for i in range(count):
        target = count - 1 - i
        lines.append(f"  store volatile float %v{i}, ptr addrspace(1) %p{target}, !dbg !12")
    return module("\n".join([*lines, "  ret void, !dbg !13"]))


def wgmma(steps: int = 2, touch_between: bool = False) -> str:
    """`steps` chained m64n256k16 with 128 accumulators a thread, in registers all the while.

    Args:
        touch_between: use an accumulator while the next product is in flight, which makes ptxas
            serialise (note C75xx).
    """
    count = 128
    struct = "{" + ", ".join(["float"] * count) + "}"
    outputs = ", ".join(f"${i}" for i in range(count))
    template = (
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" + outputs + "}, "
        f"${2 * count}, ${2 * count + 1}, 1, 1, 1, 0, 0;"
    )
    constraints = ",".join(["=f"] * count + [str(i) for i in range(count)] + ["l", "l"])
    lines = [_nullary("wgmma.fence.sync.aligned;", 20)]
    current = [f"0x{0:016x}"] * count
    for step in range(steps):
        if touch_between and step:
            lines.append(f"  %t{step} = fmul float {current[0]}, 2.0, !dbg !23")
            current = [f"%t{step}", *current[1:]]
        arguments = ", ".join(f"float {value}" for value in current)
        lines.append(
            f'  %d{step} = call {struct} asm sideeffect "{template}", "{constraints}"'
            f"({arguments}, i64 %a, i64 %b) #1, !dbg !21"
        )
        current = [f"%e{step}_{i}" for i in range(count)]
        lines += [
            f"  {name} = extractvalue {struct} %d{step}, {i}, !dbg !21"
            for i, name in enumerate(current)
        ]
    lines.append(_nullary("wgmma.commit_group.sync.aligned;", 22))
    tied = ",".join(["=f"] * count + [str(i) for i in range(count)])
    arguments = ", ".join(f"float {value}" for value in current)
    lines.append(
        f'  %w = call {struct} asm sideeffect "wgmma.wait_group.sync.aligned 0;", "{tied}"'
        f"({arguments}) #1, !dbg !24"
    )
    lines.append("  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !25")
    for i in range(count):
        lines += [
            f"  %v{i} = extractvalue {struct} %w, {i}, !dbg !25",
            f"  %o{i} = add i32 %t, {i * 128}, !dbg !25",
            f"  %p{i} = getelementptr float, ptr addrspace(1) %x, i32 %o{i}, !dbg !25",
            f"  store float %v{i}, ptr addrspace(1) %p{i}, !dbg !26",
        ]
    lines.append("  ret void, !dbg !27")
    return module(
        "\n".join(lines),
        "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()",
        "ptr addrspace(1) %x, i64 %a, i64 %b",
    )


def _nullary(text: str, op: int) -> str:
    return f'  call void asm sideeffect "{text}", "~{{memory}}"() #1, !dbg !{op}'
