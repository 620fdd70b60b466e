"""`tkdebug reproduce`: short scripts of faults and mismatches, and what is said of bad input."""

import json
import sys

import pytest
from short_scripts import reproduced

from tkdebug.errors import Frame
from tkdebug.instrument.recorder import Recorder
from tkdebug.records.events import Fault
from tkdebug.records.hook_chain import HOOKS
from tkdebug.verification.records import Answer, Case, Finding

HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
BOUND = (
    HEAD
    + """SCALE = tl.constexpr(2.0)


@triton.jit
def scaled(x, y):
    z = x * SCALE
    return z + y


@triton.autotune(configs=[triton.Config({"BLOCK": 128}, num_warps=8)], key=["n"])
@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs <= n)
    y = tl.load(y_ptr + offs, mask=offs < n)
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for i in range(0, 4):
        acc += scaled(x, y) * alpha
    tl.store(out_ptr + offs, acc, mask=offs < n)


x = torch.randn(1000, device="cuda")
y = torch.randn(1000, device="cuda")
add[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, y, torch.empty_like(x), 1000, 0.5)
"""
)
ROWS = (
    HEAD
    + """@triton.jit
def scale_rows(x_ptr, s_ptr, o_ptr, M, N, sm, sn, BM: tl.constexpr, BN: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    x = tl.load(x_ptr + rm[:, None] * sn + rn[None, :] * sm, mask=mask, other=0.0)
    s = tl.load(s_ptr + rm, mask=rm < M, other=0.0)
    tl.store(o_ptr + rm[:, None] * sm + rn[None, :] * sn, x * s[:, None], mask=mask)


def scaled(x, s):
    return x * s[:, None]


x = torch.randn(96, 96, device="cuda")
s = torch.randn(96, device="cuda")
out = torch.empty_like(x)
scale_rows[(3, 3)](x, s, out, 96, 96, *x.stride(), BM=32, BN=32)
want = scaled(x, s)
torch.testing.assert_close(out, want)
"""
)


def test_fault_becomes_script_that_shows_it_alone(tmp_path, run_main):
    answer, text = reproduced(tmp_path, "bound", BOUND)
    assert answer["statement"] == "x = tl.load(x_ptr + offs, mask=offs <= n)"
    assert (answer["kind"], answer["to"]["grid"], answer["data_file"]) == (
        "oob-load",
        [1, 1, 1],
        None,
    )
    assert answer["statement"] in text.splitlines()[0]
    assert "for i" not in text
    assert "scaled" not in text
    assert "y_ptr" not in text
    assert answer["lines"] == len(text.splitlines()) <= 16
    status, _, err = run_main("run", "--no-tui", tmp_path / "bound_short.py")
    assert status == 3
    assert "oob-load" in err


def test_mismatch_keeps_its_reference_and_its_mistake(tmp_path, run_main):
    answer, text = reproduced(tmp_path, "rows", ROWS)
    assert answer["kind"] == "mismatch"
    assert answer["statement"].startswith("tl.store(o_ptr")
    assert "rm[:, None] * sn + rn[None, :] * sm" in text
    assert "torch.testing.assert_close(o, scaled(x, s))" in text
    assert answer["to"]["elements"] <= 10
    status, _, err = run_main("run", "--no-tui", tmp_path / "rows_short.py")
    assert (status, "mismatch in scale_rows" in err) == (1, True)


def test_recorded_run_is_run_again_for_its_fault(tmp_path, run_main):
    script = tmp_path / "bound.py"
    script.write_text(BOUND)
    session = tmp_path / "run.tkd"
    assert run_main("run", "--no-tui", "-o", session, script)[0] == 3
    answer, _ = reproduced(tmp_path, "bound", BOUND, target=str(session))
    assert answer["kind"] == "oob-load"
    script.unlink()
    status, _, err = run_main("reproduce", "-o", tmp_path / "no.py", session)
    assert (status, "is not here; give the script itself" in err) == (2, True)


def test_second_fault_of_a_line_is_that_of_its_tensor(tmp_path, run_main):
    text = (
        HEAD
        + """@triton.jit
def add(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i) + tl.load(y_ptr + i))


x = torch.ones(60, device="cuda")
add[(1,)](x, x.clone(), torch.empty(64, device="cuda"), BLOCK=64)
"""
    )
    (tmp_path / "add.py").write_text(text)
    session = tmp_path / "run.tkd"
    assert run_main("run", "--no-tui", "-o", session, tmp_path / "add.py")[0] == 3
    answer, _ = reproduced(tmp_path, "add", text, "--fault", "2", target=str(session))
    assert "`y_ptr`" in answer["of"]["message"]


def test_crash_of_a_gpu_is_the_access_that_the_interpreter_finds(tmp_path):
    line = BOUND.splitlines().index("    x = tl.load(x_ptr + offs, mask=offs <= n)") + 1
    recorder = Recorder(tmp_path / "run.tkd", script=str(tmp_path / "bound.py"), output=False)
    recorder.start()
    frames = (Frame(str(tmp_path / "bound.py"), line, "add"),)
    HOOKS.fault(Fault("illegal-address", "add", frames, "access to an illegal address", 1))
    recorder.stop(1)
    answer, _ = reproduced(tmp_path, "bound", BOUND, target=str(tmp_path / "run.tkd"))
    assert (answer["kind"], answer["kernel"], answer["of"]["line"]) == ("oob-load", "add", line)


def test_failing_case_of_a_verdict_becomes_a_script(tmp_path, monkeypatch):
    kernel = ROWS.partition("def scaled")[0].replace("rn[None, :] < N", "rn[None, :] < N - 1")
    call = """
def scale(x, s):
    out = torch.zeros_like(x)
    scale_rows[(1, 1)](x, s, out, *x.shape, *x.stride(), BM=32, BN=32)
    return out
"""
    (tmp_path / "kernel.py").write_text(kernel + call)
    reference = "import torch\n\n\ndef scaled(x, s):\n    return x * s[:, None]\n"
    inputs = "\n\ndef get_inputs():\n    return [torch.rand(8, 8), torch.rand(8)]\n"
    (tmp_path / "rows_reference.py").write_text(reference + inputs)
    case = Case("normal", ((8, 8), (8,)), (), ("float32",) * 2, ("contiguous",) * 2, "normal")
    answer = Answer(str(tmp_path / "kernel.py"), "scale", "rows_reference:scaled", 0)
    answer.findings.append(Finding("wrong-value", "result[0, 0]", True, case, answer.file))
    (tmp_path / "answer.json").write_text(json.dumps(answer.as_json()))
    monkeypatch.setattr(sys, "path", list(sys.path))
    found, text = reproduced(tmp_path, "rows", ROWS, target=str(tmp_path / "answer.json"))
    assert (found["kind"], found["kernel"], found["lines"] <= 40) == (
        "mismatch",
        "scale_rows",
        True,
    )
    assert "torch.testing.assert_close(o[" in text


OVERLAPPING = (
    HEAD
    + """@triton.jit
def shifted(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, x + 1, mask=offs < n)


numbers = torch.arange(1001, dtype=torch.float32, device="cuda")
shifted[(8,)](numbers[:1000], numbers[1:], 1000, BLOCK=128)
"""
)
UNWRITTEN = (
    HEAD
    + """@triton.jit
def filled(out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, 1.0, mask=offs < n)


@triton.jit
def other(out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, 2.0, mask=offs < n)


out, second = torch.empty(100, device="cuda"), torch.empty(100, device="cuda")
filled[(1,)](out, 80, BLOCK=128)
other[(1,)](second, 100, BLOCK=128)
print(float(out.sum()))
"""
)
NO_PROGRAMS = (
    HEAD
    + """@triton.jit
def filled(out_ptr, BLOCK: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, BLOCK), 1.0)


out = torch.empty(64, device="cuda")
filled[(64 // 128,)](out, BLOCK=64)
"""
)


def test_order_of_threads_is_looked_for_in_the_short_script(tmp_path):
    answer, text = reproduced(tmp_path, "overlapping", OVERLAPPING)
    assert (answer["kind"], answer["to"]["grid"]) == ("thread-order", [1, 1, 1])
    assert "as_strided" in text


def test_fault_that_is_found_after_another_launch_is_of_its_own_launch(tmp_path, capsys):
    answer, text = reproduced(tmp_path, "unwritten", UNWRITTEN)
    assert (answer["kind"], answer["kernel"]) == ("unwritten-output", "filled")
    assert "def other" not in text
    assert "<reproduction" not in capsys.readouterr().err


def test_launch_without_programs_is_refused_by_that_reason(tmp_path, run_main):
    script = tmp_path / "none.py"
    script.write_text(NO_PROGRAMS)
    status, _, err = run_main("reproduce", "-o", tmp_path / "short.py", script)
    assert status == 2
    assert "unwritten-output in filled: its launch has no programs" in err


def test_recorded_run_with_warnings_alone_is_reproduced_by_its_first(tmp_path, run_main):
    script, session = tmp_path / "unwritten.py", tmp_path / "run.tkd"
    script.write_text(UNWRITTEN)
    assert run_main("run", "--no-tui", "-o", session, script)[0] == 0
    answer, _ = reproduced(tmp_path, "unwritten", UNWRITTEN, target=str(session))
    assert (answer["kind"], answer["kernel"]) == ("unwritten-output", "filled")


@pytest.mark.parametrize("words", [["answer.json", "--flag"], ["--fault", "2", "answer.json"]])
def test_answer_of_verify_takes_no_arguments_and_no_number(tmp_path, run_main, words):
    words = [str(tmp_path / word) if word.endswith("json") else word for word in words]
    status, _, err = run_main("reproduce", "-o", tmp_path / "short.py", *words)
    assert (status, "is an answer of verify" in err) == (2, True)


def test_script_that_the_time_did_not_suffice_for_says_so_and_nothing_else(tmp_path):
    numbers = "\n".join(f"    v = v * 1.{n:02d} + x" for n in range(40))
    text = ROWS.replace("    s = tl.load", f"    v = x\n{numbers}\n    s = tl.load")
    text = text.replace("x * s[:, None], mask", "v * s[:, None], mask")
    answer, _ = reproduced(tmp_path, "rows", text, "--budget", "0.2")
    assert (answer["is_whole"], answer["lines"] > 40) == (False, True)
    (kept,) = answer["kept"]
    assert "the time was over before all was tried" in kept


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read (No such file or directory)"),
        ("[1", "got no answer of"),
    ],
)
def test_file_that_is_no_answer_is_refused_in_one_line(tmp_path, run_main, text, said):
    answer = tmp_path / "answer.json"
    if text is not None:
        answer.write_text(text)
    status, _, err = run_main("reproduce", "-o", tmp_path / "short.py", answer)
    assert (status, len(err.splitlines())) == (2, 1)
    assert said in err


def test_script_without_a_fault_is_refused(tmp_path, run_main):
    script = tmp_path / "right.py"
    script.write_text(BOUND.replace("offs <= n", "offs < n"))
    status, out, err = run_main("reproduce", "-o", tmp_path / "short.py", script)
    assert (status, out) == (2, "")
    assert "right.py: showed no fault, interpreted" in err


@pytest.mark.parametrize("name", ["short.txt", "short"])
def test_output_that_is_no_script_is_refused(tmp_path, run_main, name):
    status, _, err = run_main("reproduce", "-o", tmp_path / name, tmp_path / "a.py")
    assert (status, "expected a file that ends in .py" in err) == (2, True)


@pytest.mark.parametrize("model", ["", "class Model: ..."])
def test_tensors_that_are_there_already_are_kept(tmp_path, run_main, model):
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"weights")
    if model:
        (tmp_path / "model.py").write_text(model)
    script = tmp_path / "a.py"
    script.write_text("")
    status, _, err = run_main("reproduce", "-o", tmp_path / "model.py", script)
    assert status == 2
    assert f"would replace {weights}, which is there already" in err
    assert weights.read_bytes() == b"weights"
