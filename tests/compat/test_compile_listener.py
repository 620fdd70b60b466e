"""`triton.knobs.compilation.listener`: what a tool gets of each compile."""

import json
import re
from pathlib import Path

import pytest
import torch
from native_support import needs_codegen

import tkdebug
import tkdebug.language as tl
from tkdebug.compat.triton_api.compile_listener import located_ir, located_ptx, set_listener
from tkdebug.compat.triton_api.compiler import ASTSource, compile
from tkdebug.compat.triton_api.knobs import CompilationKnobs, RuntimeKnobs
from tkdebug.errors import Frame
from tkdebug.runtime.device.platform import GPUTarget
from tkdebug.runtime.jit.function import jit
from tkdebug.runtime.upstream_hooks import COMPILE_HOOKS


@jit
def twice(value):
    return value * 2


@jit
def scaled(X, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(X + i, twice(tl.load(X + i, i < n)), i < n)


SOURCE = Path(__file__).read_text().splitlines()
STORE_LINE = next(at for at, line in enumerate(SOURCE, 1) if "twice(tl.load" in line)
SIGNATURE = {"X": "*fp32", "n": "i32", "BLOCK": "constexpr"}


@pytest.fixture
def heard(tmp_path):
    calls = []
    set_listener(lambda **keywords: calls.append(keywords), lambda: str(tmp_path))
    yield calls
    COMPILE_HOOKS.listener = None


def compile_natively():
    source = ASTSource(scaled, SIGNATURE, {"BLOCK": 64})
    return compile(source, target=GPUTarget("cuda", 90, 32))


def stage(call, suffix):
    return Path(call["metadata_group"][f"scaled.{suffix}"]).read_text()


def test_an_interpreted_kernel_has_its_ir_and_no_estimates(heard):
    scaled.kernels.clear()
    x = torch.ones(64)
    with tkdebug.mode("interpret"):
        for _ in range(2):
            scaled[(1,)](x, 64, BLOCK=64)
    (call,) = heard
    assert call["src"].fn is scaled
    assert call["src"].constants == {"BLOCK": 64}
    assert not call["cache_hit"]
    assert {Path(file).suffix for file in call["metadata_group"]} == {".source", ".ttir", ".json"}
    metadata = call["metadata"]
    assert (metadata["name"], metadata["num_warps"], metadata["backend_name"]) == (
        "scaled",
        4,
        "cuda",
    )
    assert "shared" not in metadata
    stored = json.loads(stage(call, "json"))
    assert stored["target"] == {"backend": "cuda", "arch": metadata["target"].arch, "warp_size": 32}
    times = call["times"]
    assert times.ir_initialization > 0
    assert times.total == (
        times.ir_initialization + dict(times.lowering_stages)["ttir"] + times.store_results
    )


@needs_codegen
def test_a_native_kernel_has_all_stages_at_its_lines(heard):
    kernel = compile_natively()
    (call,) = heard
    assert Path(call["metadata_group"]["scaled.cubin"]).read_bytes() == kernel.asm["cubin"]
    assert call["metadata"]["shared"] == kernel.metadata.shared
    assert [name for name, _ in call["times"].lowering_stages] == ["ttir", "ttgir", "cubin"]
    for suffix in ("ttir", "ttgir"):
        text = stage(call, suffix)
        (number,) = re.findall(r"tt\.store.* loc\(#loc(\d+)\)", text)
        assert f'#loc{number} = loc("{__file__}":{STORE_LINE}:1)' in text
        # What a device function does is at its line, called from the kernel's.
        (callee, caller) = re.findall(r"callsite\(#loc(\d+) at #loc(\d+)\)", text)[0]
        assert f'#loc{callee} = loc("{__file__}":{SOURCE.index("def twice(value):") + 2}:1)' in text
        assert f'#loc{caller} = loc("{__file__}":{STORE_LINE}:1)' in text
    assert f'!DIFile(filename: "{Path(__file__).name}"' in stage(call, "llir")
    lines = {int(n) for n in re.findall(r"!DILocation\(line: (\d+)", stage(call, "llir"))}
    assert STORE_LINE in lines
    assert lines <= set(range(SOURCE.index("def twice(value):"), STORE_LINE + 1))
    ptx = stage(call, "ptx")
    assert f"{Path(__file__).name}:{STORE_LINE}:0" in ptx
    assert "// -- Begin function scaled" in ptx


@needs_codegen
def test_without_a_listener_nothing_is_written(tmp_path):
    set_listener(lambda **keywords: None, lambda: str(tmp_path))
    set_listener(None, lambda: str(tmp_path))
    compile_natively()
    assert list(tmp_path.iterdir()) == []


def test_the_knob_holds_the_function_and_a_scope_puts_it_back():
    knobs = CompilationKnobs()
    assert knobs.listener is None
    with RuntimeKnobs().scope():
        knobs.listener = print
        assert knobs.listener is print
    assert knobs.listener is None


def test_lines_of_no_op_have_no_place():
    frames = (Frame("/k.py", 7, "k"), Frame("/k.py", 2, "f"))
    assert located_ir("a\nb\n", {2: frames}).splitlines() == [
        "a",
        "b loc(#loc3)",
        '#loc1 = loc("/k.py":7:1)',
        '#loc2 = loc("/k.py":2:1)',
        "#loc3 = loc(callsite(#loc2 at #loc1))",
    ]


def test_ptx_of_an_unknown_file_stays_as_it_is():
    text = '\t.loc\t1 6 0\n\t.loc\t2 6 0\n\t.file\t1 "/a/k.py"\n'
    assert located_ptx(text).splitlines()[:2] == ["\t.loc\t1 6 0 // k.py:6:0", "\t.loc\t2 6 0"]
