"""Ceilings: the kernels that show them, their times, their file, and predictions by them."""

import re
from dataclasses import replace

import pytest
import torch
from answer_schemas import valid
from native_support import needs_codegen

import tkdebug
from tkdebug.advice.judging import machine_of
from tkdebug.advice.machines import (
    MACHINES,
    UNITS,
    Ceiling,
    Ceilings,
    folder,
    measured_machine,
    newest,
    read,
    save,
)
from tkdebug.advice.model import Work, resource_seconds
from tkdebug.ceilings import (
    Load,
    Sizes,
    add,
    copy,
    higher,
    loads,
    measure,
    multiply_add,
    products,
    read_again,
    read_once,
)
from tkdebug.cli import main
from tkdebug.cli.commands.ceilings import _bare_and_native, ceilings_text
from tkdebug.compat.triton_api.compiler import ASTSource, compile
from tkdebug.knobs import KNOBS
from tkdebug.runtime.device.modes import current_mode
from tkdebug.runtime.device.platform import GPUTarget

TINY = Sizes(
    copied=64, cached=64, block=16, tile=(16, 16), depth_bytes=64, programs_per_sm=2, rounds=3
)
H200 = Ceilings(
    "GPU-1", "NVIDIA H200", "580.1", "sm_90a", 132, "2026-11-23",
    {
        "memory": Ceiling(4.2e12, 4.1e12, 4.3e12, 9, 1980),
        "L2 cache": Ceiling(7e12, 7e12, 7e12, 9, 1980),
        "fp32": Ceiling(60e12, 60e12, 60e12, 9, 1755),
        "tensor fp16": Ceiling(700e12, 690e12, 710e12, 9, 1500),
    },
)  # fmt: skip
WORK = Work(
    dram_bytes=4.2e9, l2_bytes=7e9, l1_wavefronts=0, pipes={"fp32": 1e6}, tensor_s=0, atomic_s=0,
    waits=(), awaited_dram_bytes=0, awaited_l2_bytes=0, request_s=0, blocks=1, warps=64,
    programs=132,
)  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path):
    with KNOBS.scope(cache_dir=tmp_path), tkdebug.mode("interpret"):
        yield


# The kernels


def test_what_the_kernels_compute():
    x, out = torch.randn(64), torch.empty(64)
    copy[(4,)](x, out, BLOCK=16)
    assert torch.equal(out, x)
    add[(4,)](x, x, out, BLOCK=16)
    assert torch.equal(out, x + x)
    read_once[(4,)](x, out, BLOCK=16)
    torch.testing.assert_close(out[:4], x.view(4, 16).sum(1))
    read_again[(4,)](x, out, 4, 5, BLOCK=16)
    blocks = x.view(4, 16)
    for program in range(4):
        expected = sum(blocks[(program + turn * 61) % 4] for turn in range(5))
        torch.testing.assert_close(out[program * 16 :][:16], expected)
    multiply_add[(4,)](x, out, 0.5, 0.25, 2, BLOCK=16, STEPS=3)
    expected = x
    for _ in range(6):
        expected = expected * 0.5 + 0.25
    torch.testing.assert_close(out, expected)
    a, b, product = torch.randn(16, 32).half(), torch.randn(32, 16).half(), torch.empty(2, 16, 16)
    products[(2,)](a, b, product, 3, M=16, N=16, K=32)
    torch.testing.assert_close(product, (3 * (a.float() @ b.float())).expand(2, -1, -1))


def test_loads_run_and_count_what_they_do():
    asked = list(loads(2, 90, TINY, "cpu"))
    for load in asked:
        load.run()
    assert [load.amount for load in asked if load.name == "memory"] == [4 * 68, 8 * 64, 12 * 64]
    found = {load.name: load for load in asked}
    assert list(found) == list(UNITS)
    assert found["L2 cache"].amount == 4 * 16 * (2 * 2) * 1
    assert found["fp32"].amount == 2 * 16 * 3 * (2 * 2) * 16
    assert found["tensor fp16"].amount == 2 * 16 * 16 * 32 * 3 * 2
    assert found["tensor tf32"].amount == found["tensor fp16"].amount / 2
    assert found["tensor fp8"].amount == found["tensor fp16"].amount * 2


@pytest.mark.parametrize(
    ("capability", "missing"),
    [(75, {"tensor bf16", "tensor tf32", "tensor fp8"}), (80, {"tensor fp8"}), (89, set())],
)
def test_what_an_architecture_lacks_is_not_measured(capability, missing):
    assert UNITS.keys() - {load.name for load in loads(1, capability, TINY, "cpu")} == missing


@needs_codegen
@pytest.mark.parametrize(("kind", "depth"), [("fp16", 128), ("fp8e4nv", 256)])
def test_products_on_a_hopper_do_nothing_else(kind, depth):
    signature = {"x": f"*{kind}", "y": f"*{kind}", "out": "*fp32", "rounds": "i32"}
    source = ASTSource(products, signature, {"M": 128, "N": 256, "K": depth})
    kernel = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8})
    (loop,) = (b for b in re.split(r"\n(?=\$L__BB)", kernel.asm["ptx"]) if "wgmma.mma" in b)
    assert loop.count("wgmma.mma_async") == 8
    assert not re.search(r"(ld|st)\.(shared|global|local)", loop)
    assert kernel.n_spills == 0


@needs_codegen
def test_the_cache_is_read_past_the_first_level():
    signature = {"x": "*fp32", "out": "*fp32", "blocks": "i32", "rounds": "i32"}
    attributes = {(at,): [["tt.divisibility", 16]] for at in range(2)}
    source = ASTSource(read_again, signature, {"BLOCK": 4096}, attributes)
    ptx = compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
    assert set(re.findall(r"ld\.global\S*", ptx)) == {"ld.global.cg.v4.b32"}


# Measuring


def test_the_best_way_to_ask_counts():
    slow, fast = Ceiling(1.0, 1.0, 9.0, 9, None), Ceiling(2.0, 2.0, 2.0, 9, None)
    assert higher(None, slow) is slow
    assert higher(slow, fast) is fast
    assert higher(fast, slow) is fast


class MadeUpTiming:
    def __init__(self, *times_ns):
        self.times_ns = iter(times_ns)
        self.runs = 0

    def time_ns(self, run):
        run()
        return next(self.times_ns)

    def sm_mhz(self, run):
        run()
        return 1755


def test_a_ceiling_is_the_median_of_its_repeats():
    runs = []
    load = Load("memory", 1000, lambda: runs.append(1))
    ceiling = measure(load, MadeUpTiming(10, 1000, 20), repeats=3)
    assert ceiling == Ceiling(5e10, 1e9, 1e11, 3, 1755)
    assert len(runs) == 3 + 3 + 1  # warm-ups, repeats, the clock


# The file, and predictions by it


def test_the_newest_file_of_the_architecture_counts(capsys):
    assert newest("sm_90a") is None
    assert machine_of("sm_90a") is MACHINES["sm_90a"]
    path = save(H200)
    assert path.parent == folder()
    assert read(path) == H200
    later = replace(H200, gpu="GPU-2", name="NVIDIA H100 80GB", date="2026-12-01")
    save(later)
    assert newest("sm_90a") == later
    assert newest("sm_80") is None
    assert machine_of("sm_90a").name == "NVIDIA H100 80GB"
    assert machine_of("sm_80") is MACHINES["sm_80"]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"format": 1}', '{"format": 1, "figures": {"memory": 3}}', '{"format": 2}'],
)
def test_a_damaged_file_is_one_line(text, capsys):
    path = save(H200)
    path.write_text(text)
    assert newest("sm_90a") is newest("sm_90a") is None
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert str(path) in err
    assert "measure again with tkdebug ceilings" in err


def test_predictions_are_by_what_was_measured():
    machine = measured_machine(MACHINES["sm_90a"], H200)
    times = resource_seconds(WORK, machine)
    assert times["memory"] == pytest.approx(1e-3)
    assert times["L2 cache"] == pytest.approx(1e-3)
    assert times["fp32 instructions"] == pytest.approx(64 * 1e6 / 60e12)
    assert machine.basis == "as measured on 2026-11-23 at 1500 MHz"
    # What was not measured is the data sheet's.
    assert machine.tensor_flops[8] == MACHINES["sm_90a"].tensor_flops[8]
    assert machine.tensor_flops[16] > MACHINES["sm_90a"].tensor_flops[19]


def test_without_a_gpu_it_says_so(capsys):
    assert main(["ceilings"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("tkdebug: ceilings are measured on a GPU, and there is none")
    assert not folder().exists()


def test_the_text_has_clocks_and_spread():
    lines = "".join(ceilings_text(H200)).splitlines()
    assert lines[0] == "NVIDIA H200, 132 multiprocessors, sm_90a, driver 580.1, 2026-11-23"
    assert lines[1].split() == (
        "memory 4.2 TB/s at 1980 MHz, 9 repeats from 4.1 TB/s to 4.3 TB/s".split()
    )
    other = "".join(ceilings_text(replace(H200, target="sm_120a")))
    assert "predicts for sm_80, sm_86, sm_89, sm_90a, not for sm_120a" in other


def test_kernels_run_natively_where_the_caller_has_them_interpreted():
    with KNOBS.scope(mode="interpret", interpret_kernels=("*",)), _bare_and_native():
        assert current_mode("copy") == "native"


@pytest.mark.gpu
def test_a_gpu_is_measured(capsys):
    assert main(["ceilings", "--format", "json"]) == 0
    data = valid("ceilings", capsys.readouterr().out)
    assert 0.2e12 < data["figures"]["memory"]["rate"] < 20e12
    assert data["figures"]["memory"]["rate"] < data["figures"]["L2 cache"]["rate"]
    assert newest(data["target"]).gpu == data["gpu"]
