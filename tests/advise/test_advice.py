"""Advice on kernels of which the cause is known. `advised_kernels.py` scores all of them."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import advised_kernels as corpus
import pytest
from answer_schemas import valid

from tkdebug.advice import judging
from tkdebug.advice.rules import look_at
from tkdebug.cli import main
from tkdebug.compiler.targets.registered_backends import backend_of, target_of
from tkdebug.instrument.analyses.advice import Advice
from tkdebug.instrument.renderers.advice_formats import advice_text

# One for each way in which facts are gathered; `advised_kernels.py` has the others.
SOME = (
    ("memory_first", "column_sum"),
    ("memory_more", "apply_weights"),
    ("compute_first", "digits"),
    ("compute_more", "matmul_half_sums"),
    ("compute_more", "row_dot"),
    ("held_out", "move"),
    ("held_out", "matmul_one_stage"),
    ("held_out", "row_sums"),
    ("held_out", "scale_ragged"),
    ("held_out_tiles", "few_elements"),
    ("held_out_tiles", "small_products"),
    ("held_out_tiles", "scores_by_hand"),
    ("held_out_tiles", "permute"),
    ("held_out_tiles", "deal"),
    ("variants", "attend"),
    ("variants", "normalise"),
    ("variants", "from_codes"),
    ("variants", "largest_of_segments"),
)

pytestmark = pytest.mark.skipif(
    backend_of(target_of("sm_90a")).obstacle() is not None, reason="needs code generation"
)


@cache
def told_of(file, case):
    return corpus.run(file, case)


@pytest.mark.parametrize(("file", "case"), SOME, ids=[case for _, case in SOME])
def test_the_planted_cause_ranks_first_at_its_line(file, case):
    result = told_of(file, case)
    line, kind = corpus.planted_at(file, result.cost.kernel)
    assert result.remarks, f"nothing is said of {case}"
    first = result.remarks[0]
    assert (first.kind, first.line) == (kind, line), first.message
    assert first.better_ns < first.predicted_ns
    assert "predicted: " in first.message
    # Lines of one slow operation are one remark.
    assert ("(also in lines 76, 80)" in first.message) is (case == "permute")


def test_more_stages_are_not_advised_where_shared_memory_does_not_hold_them(monkeypatch):
    def look_at_full(facts, machine):
        limits = {**facts.occupancy.limits, "shared memory": 1}
        full = replace(facts, occupancy=replace(facts.occupancy, limits=limits))
        return look_at(full, machine)

    monkeypatch.setattr(judging, "look_at", look_at_full)
    remarks = corpus.run("held_out", "matmul_one_stage").remarks
    assert "not-pipelined" not in {remark.kind for remark in remarks}


def test_tiles_that_fit_their_threads_are_not_called_small():
    remarks = corpus.run("held_out_tiles", "few_elements", form="better").remarks
    assert remarks == ()


def test_spills_that_no_cache_holds_go_to_memory():
    told = corpus.run("held_out_tiles", "rms_norm_of_a_warp", 16)
    line, kind = corpus.planted_at("held_out_tiles", "rms_norm")
    assert corpus.rank(told, line, kind) == 1
    # Eight programs of a warp on each multiprocessor hold 3 KB of spills a thread: 100 MB.
    assert told.cost.resources_ns["memory"] > 1.5 * told.cost.roof_ns


def test_fp64_is_named_where_it_is_slow_and_not_where_memory_is_slower():
    assert corpus.run("held_out", "rotate").remarks == ()
    consumer = corpus.run("held_out", "rotate", arch="sm_89")
    line, kind = corpus.planted_at("held_out", "rotate")
    assert corpus.rank(consumer, line, kind) == 1


@pytest.mark.parametrize("case", ["softmax", "transpose"])
def test_nothing_is_said_of_a_kernel_at_its_roof(case):
    result = corpus.run("good_memory", case)
    assert result.remarks == ()
    assert result.cost.bound == "memory"


def test_bytes_and_flops_are_those_of_the_kernel():
    result = corpus.run("good_memory", "add")
    n = 512 * 512
    assert (result.cost.read_bytes, result.cost.written_bytes) == (8 * n, 4 * n)
    assert result.cost.flops == n
    assert result.cost.tensor_flops == 0
    assert result.cost.is_exact


def test_products_are_counted_on_the_unit_that_computes_them():
    result = told_of("compute_more", "matmul_half_sums")
    assert result.cost.tensor_flops == 2 * 512**3


SCRIPT = """
import torch, triton, triton.language as tl

@triton.jit
def copy_columns(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i * n + tl.program_id(0), tl.load(x + i * n + tl.program_id(0)))

@triton.jit
def tiny(x):
    tl.store(x + tl.arange(0, 32), 1.0)

x = torch.ones((512, 512), device="cuda")
copy_columns[(512,)](x, torch.empty_like(x), 512, BLOCK=512)
for _ in range(60):
    tiny[(1,)](x)
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("advise") / "script.py"
    path.write_text(SCRIPT)
    return path


def test_the_command_ranks_remarks_by_predicted_gain(script, capfd):
    assert main(["advise", "--format", "json", str(script)]) == 0
    data = valid("advise", capfd.readouterr().out)
    remarks = data["remarks"]
    assert [r["rank"] for r in remarks] == list(range(1, len(remarks) + 1))
    gains = [r["predicted_gain"] for r in remarks]
    assert gains == sorted(gains, reverse=True)
    assert all(0 <= gain < 1 for gain in gains)
    columns = next(r for r in remarks if r["kind"] == "uncoalesced")
    assert "load and store of `x` and `out`" in columns["message"]
    # Of one kernel it saves no more than that becomes faster by.
    assert columns["predicted_gain"] <= 1 - 1 / columns["speedup"] + 1e-3
    places = {(Path(r["file"]).name, r["line"], r["kind"]) for r in remarks}
    assert ("script.py", 7, "uncoalesced") in places
    assert ("script.py", 10, "launch-bound") in places


def test_the_command_says_what_it_predicts(script, capfd):
    assert main(["advise", str(script)]) == 0
    out = capfd.readouterr().out
    assert "32 sectors of 32 bytes where 4 would do" in out
    # Nothing on a GPU takes a thousandth of a microsecond.
    assert "60 launches of less than a microsecond each" in out
    assert "0.0" not in out
    assert re.search(r"on an .+ (by its data sheet|as measured on \d{4}-\d\d-\d\d)", out)


def test_arguments_that_keep_accesses_narrow_are_named():
    messages = [r.message for r in corpus.run("variants", "add_padded").remarks]
    assert any("`stride` is not known to be a multiple of 16 (pad rows" in m for m in messages)
    (first, *_) = corpus.run("compute_more", "matmul_odd").remarks
    assert first.kind == "not-pipelined"
    assert re.search(r"takes 4 at least: `\w+` is not known to be a multiple of 16", first.message)


def test_what_bounds_a_kernel_without_a_remark_is_said():
    told = corpus.run("good_memory", "dropout")
    assert told.remarks == ()
    cost = replace(told.cost, kernel="silent")
    text = "".join(advice_text((), lambda file, line: None, (told.cost, cost, cost)))
    lines = text.splitlines()
    assert [line.partition(":")[0] for line in lines] == [told.cost.kernel, "silent"]
    assert "it is bound by latency, " in lines[0]
    assert "; in a grid that fills the GPU by memory, " in lines[0]


@pytest.mark.parametrize(
    ("gain", "shown"), [(0.336, "  saves 34 %"), (0.002, "  saves <1 %"), (0.0, "")]
)
def test_a_remark_shows_the_gain_that_is_predicted_and_no_other(gain, shown):
    remark = Advice("k.py", 3, "k", "large-block", "a plugin's", 1, gain, 1.0)
    first, *_ = "".join(advice_text((remark,), lambda file, line: None)).splitlines()
    assert first == f"  1. k.py:3  k  [large-block]{shown}"


def test_an_unknown_architecture_is_one_line(script, capfd):
    assert main(["advise", "--arch", "sm_12", str(script)]) == 2
    err = capfd.readouterr().err
    assert "--arch" in err or "sm_12" in err
    assert "Traceback" not in err


def test_advice_of_one_kernel_is_of_its_time(script, tmp_path, capfd):
    assert main(["advise", "--kernel", "ti*", str(script)]) == 0
    out = capfd.readouterr().out
    assert "60 launches" in out
    assert "copy_columns" not in out
    assert main(["advise", "--kernel", "copy_column", str(script)]) == 2
    said = "--kernel copy_column: no such kernel; did you mean copy_columns?"
    assert said in capfd.readouterr().err
