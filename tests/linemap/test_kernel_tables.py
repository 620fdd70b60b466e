"""Line tables of kernels as the compiler makes them, without a GPU."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
import traced_kernels
from map_checks import differences_from_nvdisasm, problems
from native_support import needs_codegen, needs_nvdisasm

import tkdebug
from tkdebug.compiler.ir import Module
from tkdebug.compiler.rewriting.rewriter import Rewriter
from tkdebug.compiler.targets.nvptx import pipeline as pipeline_stage
from tkdebug.compiler.targets.nvptx.codegen import generation
from tkdebug.compiler.targets.nvptx.cubins.line_tables import cubin_tables
from tkdebug.compiler.targets.nvptx.native_code import PerformanceNote
from tkdebug.errors import IRError
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.session import Session
from tkdebug.knobs import scope
from tkdebug.linemap.line_counts import count_lines, totals
from tkdebug.linemap.line_table import AssemblerNote, Instruction, LineTable
from tkdebug.linemap.line_table_data import from_data
from tkdebug.linemap.nvidia.sass import opcode
from tkdebug.linemap.parts import LocalFunction
from tkdebug.records.events import KernelCompiled
from tkdebug.records.hook_chain import HOOKS, Hook

pytestmark = [needs_codegen, needs_nvdisasm]
SOURCE = Path(traced_kernels.__file__).read_text().splitlines()


@pytest.fixture(autouse=True)
def native(tmp_path):
    kernels = (traced_kernels.nested, traced_kernels.crowded, traced_kernels.divided)
    for kernel in kernels:
        kernel.kernels.clear()
    with tkdebug.mode("native"), scope(cache_dir=tmp_path / "cache"):
        yield
    for kernel in kernels:
        kernel.kernels.clear()


def compile_nested(**options):
    types = [torch.float32, torch.float32]
    return traced_kernels.nested.warmup(*types, 4096, BLOCK=256, grid=(16,), **options)


def compile_crowded(**options):
    types = [torch.float32, torch.float32]
    return traced_kernels.crowded.warmup(*types, BLOCK=4096, grid=(1,), **options)


def compile_divided(**options):
    types = [torch.int64] * 3
    return traced_kernels.divided.warmup(*types, grid=(1,), **options)


def table_of(make, **options) -> tuple[LineTable, KernelCompiled, bytes]:
    events: list[KernelCompiled] = []
    hook = Hook(compiled=events.append)
    HOOKS.add(hook)
    try:
        kernel = make(**options)
    finally:
        HOOKS.remove(hook)
    event = next(event for event in events if event.line_table is not None)
    return from_data(event.line_table()), event, kernel.asm["cubin"]


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(SOURCE, start=1) if text in line)


def test_chain_through_two_device_functions_is_right() -> None:
    table, _, cubin = table_of(compile_nested)
    found = [i for i in table.instructions if opcode(i.text) == "MUFU"]
    call, root = line_of("y = outer(x)"), line_of("return tl.sqrt(x)")
    middles = {line_of("once = inner(x)"), line_of("return inner(once)")}
    assert found
    for instruction in found:
        assert [frame.function for frame in instruction.frames] == ["nested", "outer", "inner"]
        lines = [frame.line for frame in instruction.frames]
        assert (lines[0], lines[2]) == (call, root)
        assert lines[1] in middles
    # Both ways in are there, though they end on one line.
    assert {instruction.frames[1].line for instruction in found} == middles
    assert not list(problems(table))
    assert not list(differences_from_nvdisasm(table, cubin))


def test_call_line_and_inner_line_lead_to_the_same_code() -> None:
    table, _, _ = table_of(compile_nested)
    file = traced_kernels.__file__
    inner = table.of_line(file, line_of("return tl.sqrt(x)"))
    call = table.of_line(file, line_of("y = outer(x)"))
    assert inner.addresses
    assert set(inner.addresses) < set(call.addresses)
    once = table.of_line(file, line_of("once = inner(x)"))
    assert set(once.addresses) < set(inner.addresses)


def test_every_stage_is_reached_from_every_other() -> None:
    table, event, _ = table_of(compile_nested)
    load = next(i for i in table.instructions if opcode(i.text) == "LDG")
    trace = table.of_address(load.address)
    assert [table.ops[op].tile_name for op in trace.tile_ops] == ["tt.load"]
    llvm, ptx = (event.artifacts[stage].splitlines() for stage in ("llvm-ir", "ptx"))
    assert any("ld.global" in llvm[n - 1] for n in trace.llvm_lines)
    assert all("ld.global" in ptx[n - 1] for n in trace.ptx_lines)
    (op,) = trace.tile_ops
    for back in (
        table.of_gpu_op(trace.gpu_ops[0]),
        table.of_ptx_line(trace.ptx_lines[0]),
        table.of_line(trace.chains[0][-1].file, trace.chains[0][-1].line),
    ):
        assert load.address in back.addresses
        assert op in back.tile_ops


def test_op_ids_of_the_stages_are_those_of_the_table() -> None:
    table, event, _ = table_of(compile_nested)
    last_gpu = [stage for stage in event.artifacts if stage.startswith("gpu-ir")][-1]
    text = event.artifacts[last_gpu].splitlines()
    loads = [op for line, op in event.op_ids[last_gpu].items() if "tt.load" in text[line - 1]]
    assert loads
    assert all(table.ops[op].gpu_name == "tt.load" for op in loads)


def test_resources_and_occupancy() -> None:
    table, _, _ = table_of(compile_nested, num_warps=8)
    resources = table.resources
    assert resources.threads == 256
    assert 8 <= resources.registers <= 32
    assert resources.occupancy.warps == 64
    assert resources.occupancy.limited_by == ("warps",)


def test_notes_of_the_assembler_are_of_the_line_of_their_op(monkeypatch) -> None:
    record = generation.native_code

    def noting(*arguments):
        code = record(*arguments)
        op_id = next(row.op_id for row in code.ptx_lines if row.op_id is not None)
        notes = (PerformanceNote("C7510", "slow", 1, op_id), PerformanceNote("C7511", "slower"))
        return replace(code, warnings=notes)

    monkeypatch.setattr(generation, "native_code", noting)
    table, _, _ = table_of(compile_nested)
    first, second = table.notes
    assert (first.code, first.message) == ("C7510", "slow")
    assert first.frames in {chain for op in table.ops.values() for chain in op.chains}
    assert second == AssemblerNote("C7511", "slower")


def test_spills_are_of_the_line_that_made_the_values() -> None:
    table, _, _ = table_of(compile_crowded, maxnreg=64, num_warps=1)
    resources = table.resources
    assert resources.registers <= 64
    assert resources.spill_store_bytes > 0
    counts = count_lines(table)
    stores = sum(opcode(i.text) == "STL" for i in table.instructions)
    assert stores == totals(table).kinds["local-store"] > 0
    values = counts[traced_kernels.__file__, line_of("x = tl.load(x_ptr + offs)")]
    assert values.spilled_values > 0
    assert sum(line.spilled_values for line in counts.values()) == stores


def code_of(table: LineTable, function: LocalFunction) -> list[Instruction]:
    return [i for i in table.instructions if function.start <= i.address < function.end]


def test_division_out_of_line_is_of_the_only_line_that_calls_it() -> None:
    table, _, cubin = table_of(compile_divided, TWICE=False)
    (division,) = table.local_functions
    (call,) = [i for i in table.instructions if opcode(i.text) == "CALL"]
    assert division.readable_name == "__cuda_sm20_div_s64"
    assert division.callers == (call.frames,)
    assert call.frames[-1].line == line_of("out = x // y")
    code = code_of(table, division)
    assert len(code) > 50
    assert {(i.frames, i.op_id, i.ptx_line) for i in code} == {
        (call.frames, call.op_id, call.ptx_line)
    }
    assert not list(problems(table))
    assert not list(differences_from_nvdisasm(table, cubin))
    (others,) = cubin_tables(cubin)
    assert {i.frames for i in code_of(others, division)} == {call.frames}


def test_division_out_of_line_that_two_lines_call_is_of_neither() -> None:
    table, _, cubin = table_of(compile_divided, TWICE=True)
    (division,) = table.local_functions
    lines = [line_of("out = x // y"), line_of("out += (x + 5)")]
    assert [chain[-1].line for chain in division.callers] == lines
    code = code_of(table, division)
    assert len(code) > 50
    assert {(i.frames, i.op_id, i.ptx_line) for i in code} == {((), None, None)}
    assert not list(problems(table))
    (others,) = cubin_tables(cubin)
    assert [f.callers for f in others.local_functions] == [division.callers]


def test_edited_ptx_has_what_its_cubin_says(tmp_path: Path) -> None:
    with scope(dump_dir=tmp_path / "dump"):
        compile_nested()
    traced_kernels.nested.kernels.clear()
    ptx = next((tmp_path / "dump").glob("nested-*/kernel.ptx"))
    ptx.write_text("// edited\n" + ptx.read_text())
    for other in ptx.parent.iterdir():
        if other != ptx:
            other.unlink()
    with scope(override_dir=tmp_path / "dump"):
        table, _, _ = table_of(compile_nested)
    assert table.mapped_percent > 95
    assert not table.ptx_ops


def test_session_keeps_the_table(tmp_path: Path) -> None:
    path = tmp_path / "run.tkd"
    with Recorder(path, output=False):
        compile_nested()
    with Session.open(path) as session:
        (kernel,) = session.kernels()
        table = from_data(session.line_table(kernel.hash))
        assert table.kernel == "nested"
        assert table.mapped_percent > 95
        last_gpu = [stage for stage in kernel.stages if stage.startswith("gpu-ir")][-1]
        text = session.artifact(kernel.hash, last_gpu).splitlines()
        ids = session.op_ids(kernel.hash, last_gpu)
        assert any("tt.load" in text[line - 1] for line in ids)
        assert session.line_table("no such kernel") is None
        assert session.op_ids(kernel.hash, "no such stage") == {}


def test_table_that_cannot_be_made_says_so_in_the_session(tmp_path: Path) -> None:
    from tkdebug.instrument.session_file.store import line_table_text
    from tkdebug.linemap.line_table import LineTableError

    def broken() -> dict[str, object]:
        raise RuntimeError("out of luck")

    with pytest.raises(LineTableError, match="out of luck"):
        from_data(json.loads(line_table_text(broken)))
    with pytest.raises(LineTableError, match="too large"):
        from_data(json.loads(line_table_text(lambda: {"schema": 1, "files": "x" * (17 << 20)})))


@dataclass(frozen=True)
class LoseLoadLocations:
    """A pass with a mistake: ops on lines with a load get the place of the kernel's `def`."""

    name = "lose-load-locations"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        loads = {op.location.primary.line for op in module.walk() if op.name == "tt.load"}
        for op in module.walk():
            if op.location.primary.line in loads:
                op.location = module.function.location


@pytest.fixture
def planted(monkeypatch):
    pipeline = pipeline_stage.gpu_pipeline
    monkeypatch.setattr(
        pipeline_stage,
        "gpu_pipeline",
        lambda *arguments, **options: (*pipeline(*arguments, **options), LoseLoadLocations()),
    )


def test_pass_that_drops_a_location_fails_the_checks_of_tables(planted) -> None:
    table, _, _ = table_of(compile_nested)
    found = [line for line in problems(table) if "LDG" in line]
    assert found
    assert "which has" in found[0]


def test_pass_that_drops_a_location_breaks_the_provenance_invariant(planted) -> None:
    with scope(verify_each=True), pytest.raises(IRError, match="lose-load-locations"):
        compile_nested()


def test_unmapped_instructions_fail_the_checks_of_tables() -> None:
    table, _, _ = table_of(compile_nested)
    bare = replace(
        table,
        instructions=tuple(
            replace(i, frames=()) if opcode(i.text) in ("STG", "IMAD") else i
            for i in table.instructions
        ),
    )
    assert any("unmapped" in line for line in problems(bare))
