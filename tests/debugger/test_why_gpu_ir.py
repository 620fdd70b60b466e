"""Slices in GPU IR: through shared memory, its slots and copies, to the elements of the inputs."""

import sys
from pathlib import Path

import debugged_kernels as kernels
import pytest
import torch
from fronts import Scripted, debugging

from tkdebug import TensorDescriptor, compat
from tkdebug.debugger.breakpoints import BreakKind
from tkdebug.debugger.goals import Continue, Restart, Step, StepKind
from tkdebug.debugger.value_text import element_text
from tkdebug.debugger.why.answers import why, why_nan

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

N = 96


def loaded(found):
    """Return the loads of the slice: offsets by tensor, and the values there."""
    offsets, values = {}, {}
    for each in found.computed:
        for name, (_, places, data) in each.loads.items():
            offsets.setdefault(name, set()).update(torch.cat(places).tolist())
            pairs = zip(torch.cat(places).tolist(), torch.cat(data).tolist(), strict=True)
            values.setdefault(name, {}).update(pairs)
    return offsets, values


def product(ask, target="sm_80", a=None, steps=()):
    torch.manual_seed(0)
    a = torch.randn(32, N).half() if a is None else a
    b, out, answers = torch.randn(N, 32).half(), torch.zeros(32, 32), []
    front = Scripted([*steps, lambda debugger: answers.append(ask(debugger.at_stop))])
    with debugging(front, target=target) as debugger:
        debugger.choose_stage("gpu-ir")
        debugger.add(BreakKind.END)
        kernels.product[(1,)](a, b, out, N, SIZE=32)
    return answers[0], a, b


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90a"])
def test_an_element_of_a_pipelined_product_is_of_a_row_and_a_column(target):
    found, a, b = product(lambda at: why(at, "out[3, 5]"), target)
    offsets, values = loaded(found)
    row, column = {3 * N + k for k in range(N)}, {32 * k + 5 for k in range(N)}
    assert offsets == {"a_ptr": row, "b_ptr": column}
    for name, tensor in (("a_ptr", a), ("b_ptr", b)):
        flat = tensor.reshape(-1).tolist()
        assert all(flat[at] == value for at, value in values[name].items())


def test_a_loop_that_copies_ahead_of_its_rounds_names_no_counter():
    a, b, out = torch.ones(32, 96).half(), torch.ones(96, 32).half(), torch.zeros(32, 32)
    found = []
    front = Scripted([lambda debugger: found.append(why(debugger.at_stop, "scale[3]"))])
    with debugging(front, target="sm_80") as debugger:
        debugger.choose_stage("gpu-ir")
        debugger.add_line(kernels.FILE, kernels.line("scaled operand"), condition="part == 2")
        kernels.scaled_product[(1,)](a, b, torch.ones(3, 32), out, 3, SIZE=32)
    lines = (*found[0].computed, *found[0].addressed)
    names = {name for line in lines for name in line.values}
    assert loaded(found[0])[0] == {"scale_ptr": {2 * 32 + 3}}
    assert "i" in names
    assert "part" not in names


def test_values_are_those_of_the_launch_after_going_back():
    def back(debugger):
        return Step(StepKind.OVER, backwards=True)

    def acc(at):
        found = why(at, "out[3, 5]")
        line = next(each for each in found.computed if "acc" in each.values)
        return line.values["acc"][0].item()

    steps = [back, back, Step(StepKind.OVER), Step(StepKind.OVER)]
    shown, a, b = product(acc, steps=steps)
    assert shown == pytest.approx((a.float() @ b.float())[3, 5].item(), rel=1e-2)


def test_nan_is_followed_through_shared_memory_to_the_operand():
    a = torch.ones(32, N).half()
    a[3, 40] = float("nan")
    found, *_ = product(lambda at: why_nan(at, "out[3, 5]"), a=a)
    assert loaded(found)[0] == {"a_ptr": {3 * N + 40}}


def test_an_element_of_attention_is_of_q_k_and_v():
    answers = []
    front = Scripted([lambda d: answers.append(why(d.at_stop, "out[0, 0, 3, 5]"))])
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, 70, 32).half() for _ in range(3))
    with compat.install(mode="interpret"), debugging(front, target="sm_80") as debugger:
        from attention import attention

        debugger.choose_stage("gpu-ir")
        debugger.add(BreakKind.END)
        attention(q, k, v, True)
    offsets, _ = loaded(answers[0])
    assert offsets["q_ptr"] == {3 * 32 + d for d in range(32)}
    # Causal: later keys are masked off. Their values are multiplied by weights of zero.
    assert offsets["k_ptr"] == {32 * key + d for key in range(4) for d in range(32)}
    assert offsets["v_ptr"] >= {32 * key + 5 for key in range(4)}
    assert all(offset % 32 == 5 for offset in offsets["v_ptr"])


def described(launch, element, stage):
    """`why` of an element at the end of a launch."""
    answers = []
    front = Scripted([lambda debugger: answers.append(why(debugger.at_stop, element))])
    with debugging(front, target="sm_90a") as debugger:
        debugger.choose_stage(stage)
        debugger.add(BreakKind.END)
        launch()
    return answers[0]


@pytest.mark.parametrize("stage", ["tile-ir", "gpu-ir"])
def test_bulk_copies_are_followed_to_the_elements_of_the_inputs(stage):
    torch.manual_seed(0)
    a, b = torch.randn(64, N).half(), torch.randn(N, 32).half()
    out = torch.zeros(64, 32, dtype=torch.float16)
    tensors = [TensorDescriptor.from_tensor(t, [x, 32]) for t, x in ((a, 64), (b, 32))]
    launch = lambda: kernels.described_product[(1,)](*tensors, out, N, 64, 32, 32)  # noqa: E731
    found = described(launch, "out[3, 5]", stage)
    offsets, values = loaded(found)
    assert offsets == {"a": {3 * N + k for k in range(N)}, "b": {32 * k + 5 for k in range(N)}}
    assert all(a.reshape(-1)[at] == value for at, value in values["a"].items())
    shown = [line.values["acc"][0].item() for line in found.computed if "acc" in line.values]
    assert shown[0] == pytest.approx((a.float() @ b.float())[3, 5].item(), rel=1e-3)


def test_a_bulk_copy_to_memory_is_followed_to_what_filled_its_buffer():
    x, out = torch.randn(64, 32), torch.zeros(64, 32)
    tensors = [TensorDescriptor.from_tensor(tensor, [32, 32]) for tensor in (x, out)]
    launch = lambda: kernels.doubled_blocks[(1,)](*tensors, SIZE=32)  # noqa: E731
    found = described(launch, "out[40, 5]", "gpu-ir")
    assert found.what.startswith(
        f"out[40, 5] is {element_text(2 * x[40, 5])}: written by program 0"
    )
    assert loaded(found)[1] == {"x": {40 * 32 + 5: x[40, 5].item()}}


def test_a_dot_on_its_way_is_not_available_after_going_back_either():
    a, b = torch.randn(64, N).half(), torch.randn(N, 32).half()
    out = torch.zeros(64, 32, dtype=torch.float16)
    tensors = [TensorDescriptor.from_tensor(t, [x, 32]) for t, x in ((a, 64), (b, 32))]
    waits, seen = [], []

    def note(debugger):
        waits.append(debugger.at_stop.here.op)

    def look(debugger):
        seen.append(type(debugger.at_stop.read_ir(waits[-1].results[0])).__name__)

    once = [note, Step(StepKind.OP), look]
    front = Scripted([*once, Restart(), Continue(), *once])
    with debugging(front, target="sm_90a") as debugger:
        debugger.choose_stage("gpu-ir")
        debugger.add(BreakKind.OP, "ttng.warp_group_dot_wait")
        kernels.described_product[(1,)](*tensors, out, N, 64, 32, 32)
    assert seen == ["Unavailable", "Unavailable"]
