"""`tkdebug verify`: right, wrong with the smallest example, undecided and why; tricks by name."""

import inspect
import json
import math
import re
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from answer_schemas import valid

import tkdebug
from tkdebug.cli import main
from tkdebug.cli.commands.verify import replay_of
from tkdebug.compat import install
from tkdebug.errors import UsageError
from tkdebug.knobs import KNOBS
from tkdebug.runtime.device import platform
from tkdebug.verification import problem, process, search, worker
from tkdebug.verification.plan import Plan
from tkdebug.verification.process import verify
from tkdebug.verification.records import Answer, Case, Finding, Request, in_modes, joined
from tkdebug.verification.report import read, render
from tkdebug.verification.worker import examine

FILE = str(Path(__file__).with_name("verified_kernels.py"))


def request(function, reference="triple", **given):
    given = {"seconds": 120.0, "cases": 6, **given}
    return Request(FILE, function, f"verified_references:{reference}", **given)


def examine_with(inputs, function, **given):
    """Return the answer for other example inputs."""
    import verified_references

    verified_references.other_inputs = inputs
    return examine(request(function, inputs="verified_references:other_inputs", **given))


def kinds(answer):
    return [finding.kind for finding in answer.findings if finding.is_wrong]


@pytest.fixture(scope="module")
def right():
    return examine(request("right", cases=20))


@pytest.fixture(scope="module")
def wrong():
    return examine(request("wrong_factor"))


def test_right_kernel_is_right_after_many_cases(right):
    assert (right.verdict, kinds(right)) == ("right", [])
    covered = right.covered
    assert covered.cases > 10
    assert covered.launches >= covered.cases
    assert covered.kernels == ["scale_kernel"]
    assert covered.refused > 0, "inputs that are not contiguous"
    assert "2^-24" in right.tolerance


def test_wrong_value_has_its_smallest_example_and_cause(wrong):
    assert wrong.verdict == "wrong"
    (finding,) = [one for one in wrong.findings if one.is_wrong]
    assert finding.kind == "wrong-value"
    assert finding.case.shapes == ((1, 1),)
    assert finding.fault["kind"] == "mismatch"
    assert finding.line is not None


def test_case_of_an_answer_is_replayed(wrong):
    again = examine(request("wrong_factor", case=wrong.case.as_text()))
    assert (again.verdict, again.covered.cases) == ("wrong", 1)
    fixed = examine(request("right", case=wrong.case.as_text()))
    assert (fixed.verdict, fixed.covered.cases) == ("right", 1)


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        ("reads_outside", "oob-load"),
        ("refuses", "refuses-example"),
        ("writes_only_a_part", "wrong-value"),
        ("torch_alone", "torch-fallback"),
        ("torch_beside", "kernel-unused"),
        ("torch_then_copy", "torch-fallback"),
        ("by_pointer", "cached-result"),
        ("by_sum", "cached-result"),
        ("in_one_buffer", "shared-result"),
        ("on_a_stream", "other-stream"),
        ("in_a_thread", "other-thread"),
        ("changes_its_input", "input-changed"),
        ("constant_for_its_shape", "constant-result"),
        ("lowers", "precision-lowered"),
        ("example_by_torch", "torch-fallback"),
        ("by_bytes", "no-kernel"),
        ("lazily", "lazy-result"),
        ("starts_a_process", "other-process"),
        ("seeds", "patched"),
        ("leaves_a_stream", "other-stream"),
        ("waits_too_early", "other-stream"),
    ],
)
def test_trick_is_named(function, kind):
    with KNOBS.scope(cause_seconds=0.05):
        answer = examine(request(function, cases=2))
    assert answer.verdict == "wrong"
    assert kind in kinds(answer)


@pytest.mark.parametrize("function", ["on_a_joined_stream", "waits_for_an_event"])
def test_stream_that_is_waited_for_is_no_trick(function):
    answer = examine(request(function))
    assert (answer.verdict, kinds(answer)) == ("right", [])


@pytest.mark.parametrize(
    ("function", "kind"), [("looks_at_callers", "looks-at-callers"), ("gives_wide_floats", "dtype")]
)
def test_doubtful_kernel_is_undecided(function, kind):
    answer = examine(request(function, cases=1))
    assert answer.verdict == "undecided"
    (finding,) = [one for one in answer.findings if one.kind == kind]
    assert answer.why == finding.message


def case_of(*shapes, values="normal", dtype="float32", dtypes=None):
    """Return one case as text."""
    given = {"name": "", "shapes": shapes, "dtypes": dtypes or [dtype] * len(shapes)}
    layouts = ["contiguous"] * len(shapes)
    return json.dumps({**given, "values": values, "layouts": layouts})


def test_product_in_tf32_is_undecided_unless_the_reference_takes_it():
    example = lambda: [torch.randn(16, 16), torch.randn(16, 16)]  # noqa: E731
    case = case_of((16, 16), (16, 16))
    asked = {"reference": "product", "case": case}
    lowered = examine_with(example, "product", **asked)
    assert (lowered.verdict, [one.kind for one in lowered.findings]) == ("undecided", ["tf32"])
    assert examine_with(example, "wrong_product", **asked).verdict == "wrong"
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        taken = examine_with(example, "product", **asked)
    finally:
        torch.set_float32_matmul_precision(before)
    assert (taken.verdict, taken.findings) == ("right", [])


def test_kernel_that_does_not_compile_for_another_type_refuses_it():
    example = lambda: [torch.randn(4, 9)]  # noqa: E731
    half = examine_with(example, "exp", reference="exp", case=case_of((4, 9), dtype="float16"))
    assert (half.covered.refused, half.findings) == (1, [])
    own = lambda: [torch.randn(4, 9).half()]  # noqa: E731
    case = case_of((4, 9), dtype="float16")
    assert kinds(examine_with(own, "exp", reference="exp", case=case)) == ["compile-error"]


def test_inputs_that_are_not_meant_leave_it_undecided():
    example = lambda: [torch.randn(4, 9)]  # noqa: E731
    nan = examine_with(example, "unary", reference="relu", case=case_of((4, 9), values="nan"))
    assert (nan.verdict, [one.kind for one in nan.findings]) == ("undecided", ["other-inputs"])
    assert "numbers that are not finite" in nan.why
    indices = lambda: [torch.randn(8, 16), torch.tensor([3, 1, 2, 0])]  # noqa: E731
    case = case_of((8, 16), (4,), values="negative indices", dtypes=["float32", "int64"])
    outside = examine_with(indices, "rows", reference="rows", case=case)
    assert (outside.verdict, kinds(outside)) == ("undecided", [])
    assert "integers outside of the example's" in outside.why
    rows = lambda: [torch.randn(4, 8)]  # noqa: E731
    case = case_of((4, 3))
    by_one = examine_with(rows, "products_of_halves", reference="products_of_halves", case=case)
    assert (by_one.covered.no_inputs, kinds(by_one)) == (1, [])
    square = lambda: [torch.randn(8, 8)]  # noqa: E731
    case = case_of((4, 8))
    apart = examine_with(square, "halves_of_squares", reference="products_of_halves", case=case)
    assert (apart.verdict, kinds(apart)) == ("undecided", [])
    assert "sizes that are equal in the example differ" in apart.why
    parts = lambda: [torch.randn(4, 9), torch.tensor([3, 5, 0, 2]), 6]  # noqa: E731
    for shape, number, reason in (
        ((4, 2), 6, "integers are larger than a size that is larger in the example"),
        ((4, 9), 1, "a number on which the reference does not depend"),
    ):
        case = json.loads(case_of(shape, (4,), dtypes=["float32", "int64"]))
        case = json.dumps({**case, "numbers": [number]})
        part = examine_with(parts, "sums_of_parts", reference="sums_of_parts", case=case)
        assert (part.verdict, kinds(part)) == ("undecided", [])
        assert reason in part.why
    row = lambda: [torch.randn(200)]  # noqa: E731
    unordered = examine_with(row, "turned", reference="turned", case=case_of((200,)))
    assert (unordered.verdict, unordered.findings[0].kind) == ("undecided", "thread-order")
    case = json.dumps({**json.loads(case_of((4, 9))), "way": "padding poisoned"})
    padded = examine_with(rows, "sum_of_masked", reference="total", case=case)
    assert (padded.verdict, kinds(padded)) == ("undecided", [])
    assert "`other`" in padded.why


def test_parameters_of_other_names_are_drawn_and_kept_ones_leave_it_undecided(monkeypatch):
    case = json.dumps({**json.loads(case_of((4, 24))), "weights": "random"})
    drawn = {name: examine(request(name, "Weighted", case=case)) for name in ("Renamed", "Ignored")}
    assert {name: one.verdict for name, one in drawn.items()} == {
        "Renamed": "right",
        "Ignored": "wrong",
    }
    monkeypatch.setattr(Plan, "planned", lambda plan: iter(()))
    monkeypatch.setattr(Plan, "doubtful", lambda plan: iter(()))
    prepared = examine(request("Prepared", "Weighted", cases=0))
    assert (prepared.verdict, kinds(prepared)) == ("undecided", [])
    assert "something is kept as it was made" in prepared.why


def test_other_index_than_the_first_of_equal_values_is_doubtful():
    equal = json.dumps({"name": "", "shapes": [[3, 9]], "dtypes": ["float32"], "values": "equal",
                        "layouts": ["contiguous"]})  # fmt: skip
    last = examine(request("last_argmax", "argmax", case=equal))
    assert [one.kind for one in last.findings] == ["other-of-ties"]
    assert (last.verdict, last.why) == ("undecided", last.findings[0].message)
    assert not examine(request("argmax", "argmax", case=equal)).findings


def test_branch_that_never_ran_leaves_it_undecided():
    answer = examine(request("torch_later", cases=1))
    assert (answer.verdict, answer.findings[-1].kind) == ("undecided", "not-run")
    assert "`calls[0] > 10000`" in answer.why


def test_outcome_of_a_kernels_condition_that_no_launch_had_leaves_it_undecided(monkeypatch):
    monkeypatch.setattr(Plan, "planned", lambda plan: iter(()))
    monkeypatch.setattr(Plan, "doubtful", lambda plan: iter(()))
    answer = examine(request("other_in_large", cases=0))
    assert (answer.verdict, answer.findings[-1].kind) == ("undecided", "not-run")
    assert "is it True that `n > 1 << 26`" in answer.why


@pytest.mark.parametrize("function", ["ends_early", "wrong_in_large"])
def test_inputs_are_made_for_branches_and_the_ends_of_grids(function, monkeypatch):
    monkeypatch.setattr(Plan, "planned", lambda plan: iter(()))
    monkeypatch.setattr(search, "_SHRINK_SHARE", 0.0)
    with KNOBS.scope(cause_seconds=0.05):
        answer = examine(request(function, cases=1, seconds=6.0))
    (finding,) = [one for one in answer.findings if one.is_wrong]
    assert finding.kind == "wrong-value"
    assert sum(math.prod(shape) for shape in finding.case.shapes) > 1 << 18


def test_host_code_that_takes_long_is_not_asked_about_its_grid(monkeypatch):
    monkeypatch.setattr(Plan, "planned", lambda plan: iter(()))
    answer = examine(request("row_by_row", cases=1, seconds=3.0))
    assert (answer.verdict, answer.why) == ("right", "")


def test_other_signs_of_zeros_are_no_change_of_an_input():
    zeros = json.dumps({"name": "", "shapes": [[4, 9]], "dtypes": ["float32"], "values": "zeros",
                        "layouts": ["contiguous"]})  # fmt: skip
    example = lambda: [torch.randn(4, 9)]  # noqa: E731
    signed = examine_with(example, "writes_positive_zeros", case=zeros)
    assert (signed.verdict, kinds(signed)) == ("right", [])
    assert kinds(examine_with(example, "changes_its_input", case=zeros)) == ["input-changed"]


def test_module_is_looked_at_in_evaluation_and_made_with_other_arguments(monkeypatch):
    with install(mode="interpret"):  # for its `import triton`
        import verified_kernels

    monkeypatch.setattr(verified_kernels, "get_init_inputs", lambda: [3.0], raising=False)
    monkeypatch.setattr(problem, "_import_file", lambda path: verified_kernels)
    answer = examine(request("Fixed", "Double", cases=3))
    kinds_found = {finding.kind for finding in answer.findings}
    assert kinds_found >= {"stale-buffers", "eval-mode", "other-constructor"}
    assert (answer.verdict, kinds(answer)) == ("undecided", [])


def test_reference_that_the_candidate_replaces_is_a_finding():
    import verified_references

    code = verified_references.triple.__code__
    try:
        answer = examine(request("replaces_the_reference", cases=1))
    finally:
        verified_references.triple.__code__ = code
    assert kinds(answer)[0] == "patched"
    assert "verified_references.triple" in answer.findings[0].message


def test_index_of_any_of_the_equal_values_is_right_and_no_other():
    right_one = examine(request("argmax", "argmax", cases=40))
    assert (right_one.verdict, kinds(right_one)) == ("right", [])
    with KNOBS.scope(cause_seconds=0.05):
        assert kinds(examine(request("sum_of_argmaxes", "argmax", cases=40))) == ["wrong-value"]


def test_slow_reference_is_asked_for_small_inputs_alone():
    asked = request("right", "slow", inputs="verified_kernels:many", seconds=2.0, cases=1)
    answer = examine(asked)
    assert answer.covered.cases > 0
    assert "slow, on the example inputs it takes more than 0.2 s" in answer.covered.notes[0]


def test_native_answer_is_made_of_what_hooks_hear(monkeypatch):
    monkeypatch.setattr(worker, "platform_in_force", lambda: SimpleNamespace(obstacle=lambda: None))
    monkeypatch.setattr(worker, "install", lambda mode, **given: install("interpret", **given))
    answer = examine(request("right", mode="native"))
    assert (answer.verdict, answer.modes, kinds(answer)) == ("right", ["native"], [])
    assert answer.covered.kernels == ["scale_kernel"]
    assert set(answer.covered.ways) == {"checked"}
    assert kinds(examine(request("by_bytes", mode="native", cases=1)))[0] == "no-kernel"


def test_native_mode_without_a_gpu_says_so(monkeypatch):
    nothing = SimpleNamespace(obstacle=lambda: "there is no GPU")
    monkeypatch.setattr(worker, "platform_in_force", lambda: nothing)
    with pytest.raises(UsageError, match="--mode native: there is no GPU"):
        examine(request("right", mode="native"))


@pytest.mark.parametrize(
    ("reason", "words", "modes"),
    [
        (None, [], ["native", "interpret"]),
        (None, ["--mode", "interpret"], ["interpret"]),
        ("there is no GPU", [], ["interpret"]),
        ("there is no GPU", ["--mode", "both"], ["native", "interpret"]),
    ],
)
def test_kernels_run_in_both_modes_where_there_is_a_gpu(
    reason, words, modes, right, monkeypatch, capsys
):
    def answer_of(request):
        return replace(deepcopy(right), modes=[request.mode])

    monkeypatch.setattr(process, "verify", answer_of)
    found = SimpleNamespace(obstacle=lambda: reason)
    monkeypatch.setattr(platform, "platform_in_force", lambda: found)
    assert main(["verify", *words, "--format", "json", f"{FILE}:right", "--reference", "m:f"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["modes"] == modes
    assert ("--mode" in data["replay"]) == bool(words)


def test_answers_of_both_modes_are_one(right, wrong):
    both = in_modes([deepcopy(right), replace(deepcopy(wrong), modes=["native"])])
    assert (both.verdict, both.modes) == ("wrong", ["interpret", "native"])
    assert both.covered.cases == right.covered.cases + wrong.covered.cases


def test_replaced_comparison_is_a_finding(monkeypatch):
    monkeypatch.setattr(torch, "allclose", torch.allclose)  # put back after the test
    answer = examine(request("patches", cases=1))
    assert kinds(answer)[0] == "patched"


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("random", "the reference is random"),
        ("fails", "the reference fails on the example inputs: RuntimeError"),
        ("in_bits", "the reference does not run in fp64"),
    ],
)
def test_reference_that_says_nothing_leaves_it_undecided(reference, why):
    answer = examine(request("right", reference))
    assert answer.verdict == "undecided"
    assert why in answer.why


def test_answer_is_what_its_schema_says(wrong):
    text = "".join(render(wrong, "json"))
    data = valid("verify", text)
    assert data["case"] == data["findings"][0]["case"]
    assert "".join(render(Answer.of_json(data), "json")) == text


def test_answers_of_shards_are_joined(right, wrong):
    parts = [examine(request("right", shard=(n, 2), cases=4)) for n in (1, 2)]
    whole = joined(parts)
    assert (whole.verdict, whole.covered.cases) == ("right", sum(p.covered.cases for p in parts))
    alone = joined(parts[:1])
    assert (alone.verdict, alone.why) == ("undecided", "the answer of shard 2/2 is missing")
    with pytest.raises(UsageError, match="two verifications: function"):
        joined([right, wrong])


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"shard": "2/3"}, "number of shards is 3, and 2"),
        ({"shard": "1/2"}, "two answers are of shard 1/2"),
        ({"seed": 9}, "seed is 9, and 0"),
        ({"replay": "tkdebug verify a.py --inputs m:other"}, "inputs is 'm:other', and ''"),
    ],
)
def test_answers_that_do_not_belong_together_are_refused(right, changes, text):
    first = Answer.of_json({**right.as_json(), "shard": "1/2"})
    second = Answer.of_json({**right.as_json(), "shard": "2/2", **changes})
    with pytest.raises(UsageError, match=re.escape(text)):
        joined([first, second])


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"shard": "1/99999999999"}, "expected a part such as 1/4"),
        ({"shard": "2/1"}, "expected a part such as 1/4"),
        ({"seconds": "9"}, "seconds: got '9', expected an integer or a number"),
        ({"findings": [3]}, "findings: got 3, expected objects"),
        ({"modes": "native"}, "modes: got 'native', expected a list"),
        ({"verdict": "fine"}, "verdict 'fine'"),
        ({"covered": {"ways": [1]}}, "ways: got [1], expected an object"),
        ({"covered": {"ways": {"checked": "1"}}}, "checked: got '1', expected an integer"),
    ],
)
def test_answer_of_other_types_is_refused_in_one_line(tmp_path, right, changes, text):
    (tmp_path / "a.json").write_text(json.dumps({**right.as_json(), **changes}))
    with pytest.raises(UsageError, match=re.escape(text)) as caught:
        read(tmp_path / "a.json")
    assert "\n" not in str(caught.value)


def test_replay_of_other_bits_searches_again(right):
    asked = replace(request("right"), reference="m:f", is_deterministic=True)
    case = Case("again")
    bits = replace(right, findings=[Finding("not-deterministic", "other bits", True, case)])
    assert replay_of("a.py:f", asked, None, bits).endswith("--seed 0 --deterministic")
    wrong_value = replace(right, findings=[Finding("wrong-value", "wrong", True, case)])
    assert "--case" in replay_of("a.py:f", asked, None, wrong_value)


def test_answer_as_sarif_and_junit(right, wrong):
    (run,) = json.loads("".join(render(wrong, "sarif")))["runs"]
    (result,) = [one for one in run["results"] if one["level"] == "error"]
    assert result["ruleId"] == run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"]
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] > 1
    suite = ElementTree.fromstring("".join(render(wrong, "junit")))
    assert [one.attrib["type"] for one in suite.iter("failure")] == ["wrong-value"]
    assert not [*ElementTree.fromstring("".join(render(right, "junit"))).iter("failure")]


def test_decorated_function_is_a_test(right):
    kernels = sys.modules["verified_kernels"]  # imported for the answer

    def double(x):
        """Doubles."""
        return 2.0 * x

    def example():
        return [torch.ones(3, 5)]

    @tkdebug.verify(reference=double, inputs=example, cases=4, deterministic=True)
    def test_right(x):
        return kernels.launched(kernels.scale_kernel, x, 2.0)

    @tkdebug.verify(reference=double, inputs=example, cases=4)
    def test_wrong(x):
        return kernels.right(x)

    assert (test_right.__name__, inspect.signature(test_right).parameters) == ("test_right", {})
    test_right()
    with (
        KNOBS.scope(cause_seconds=0.05),
        pytest.raises(AssertionError, match="wrong-value: result"),
    ):
        test_wrong()


def test_rows_that_depend_on_the_batch_are_found():
    kinds_found = kinds(examine(request("by_size", cases=1, is_batch_invariant=True)))
    assert kinds_found == ["not-batch-invariant"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["a.py"], "--reference is missing"),
        (["a.py", "b.py", "--reference", "m:f"], "got 2 files"),
        (["no.py:f", "--reference", "m:f"], "no.py: there is no such file"),
        ([FILE, "--reference", "m:f", "--case", "[1"], "--case: got '[1'"),
        ([FILE, "--reference", "m:f", "--shard", "3/2"], "expected a part such as 1/4"),
        (["--join", FILE], "is no answer of `tkdebug verify --format json`"),
        ([], "expected FILE[:function]"),
    ],
)
def test_what_is_wrong_with_the_words_is_one_line(capsys, words, text):
    try:
        status = main(["verify", *words])
    except SystemExit as error:
        status = error.code
    captured = capsys.readouterr()
    assert (status, captured.out) == (2, "")
    assert text in captured.err.splitlines()[-1]


def test_endless_kernel_ends_at_the_budget(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(FILE).parents[2]))
    answer = verify(request("endless", seconds=0.1))
    assert answer.verdict == "undecided"
    assert "did not end within the budget" in answer.why


def test_kernel_that_writes_into_the_pipe_of_answers_is_undecided(tmp_path):
    script = tmp_path / "kernel.py"
    script.write_text(
        "import contextlib, os\n"
        "for handle in range(3, 4096):\n"
        "    with contextlib.suppress(OSError):\n"
        '        os.write(handle, b\'{"answer": {}, "is_final": true}\\n\')\n'
        "def right(x):\n"
        "    return 3 * x\n"
    )
    (tmp_path / "plain.py").write_text(
        "import torch\n"
        "def triple(x):\n"
        "    return 3 * x\n"
        "def get_inputs():\n"
        "    return [torch.ones(4, 4)]\n"
    )
    answer = verify(Request(str(script), "right", "plain:triple", seconds=60.0, cases=2))
    assert answer.verdict == "undecided"
    assert answer.why == "the kernel's process wrote a record that is none of tkdebug's"
