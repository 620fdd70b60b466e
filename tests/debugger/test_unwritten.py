"""Why an element was not written, before passes and in GPU IR."""

import debugged_kernels as kernels
import pytest
import torch
from fronts import Scripted, debugging

from tkdebug import TensorDescriptor
from tkdebug.debugger.breakpoints import BreakKind
from tkdebug.debugger.goals import Continue
from tkdebug.debugger.stops import Reason
from tkdebug.debugger.why.answers import why
from tkdebug.debugger.why.unwritten import why_not_written
from tkdebug.errors import UsageError

STAGES = [("tile-ir", "sm_80"), ("gpu-ir", "sm_80"), ("gpu-ir", "sm_90a")]


def asked(launch, elements, stage, target):
    """The answers for elements at the end of a launch."""
    answers = []
    ask = lambda d: answers.extend(why_not_written(d.at_stop, each) for each in elements)  # noqa: E731
    with debugging(Scripted([ask]), target=target) as debugger:
        debugger.choose_stage(stage)
        debugger.add(BreakKind.END)
        launch()
    return answers


@pytest.mark.parametrize(("stage", "target"), STAGES)
def test_masks_and_branches_that_left_an_element_out_are_named_with_their_values(stage, target):
    at = {name: kernels.line(name) for name in ("masked store", "masked atomic", "early", "mask")}
    tensors = [torch.zeros(70) for _ in range(3)]
    launch = lambda: kernels.left_out[(4,)](torch.arange(64.0), *tensors, 50, BLOCK=16)  # noqa: E731
    elements = ["out[49]", "out[65]", "sums[40]", "sums[49]", "rare[3]", "out[3]"]
    masked, never, early, atomic, rare, written = asked(launch, elements, stage, target)
    store, add = (f"addresses it at line {at[name]}" for name in ("masked store", "masked atomic"))
    head = "was not written: program"
    assert masked.what == f"out_ptr[49] {head} 3 {store}, but its mask is false there"
    (line,) = (line for line in masked.addressed if line.place.line == at["mask"])
    assert line.values["keep"][0].tolist() == [False]
    assert masked.inputs == ("n = 50",)
    assert "addresses elements 0 to 63 of out_ptr in all, never this one" in never.what
    other = f"but is in the other branch of the `if` at line {at['early']} then"
    assert early.what == f"sums_ptr[40] {head} 2 {add}, {other}"
    assert [line.values["pid"][0].item() for line in early.addressed if line.values] == [2]
    assert atomic.what == f"sums_ptr[49] {head} 3 {add}, but its mask is false there"
    assert rare.what.endswith(
        f"no program has come to the store at line {kernels.line('rare store')}, "
        f"in the `if` at line {kernels.line('never')}"
    )
    assert written.what == f"out_ptr[3] was written, by program 0 at line {at['masked store']}"


@pytest.mark.parametrize(("stage", "target"), STAGES)
def test_what_is_outside_of_a_descriptor_s_shape_is_not_written(stage, target):
    x = TensorDescriptor.from_tensor(torch.ones(64, 64), [32, 32])
    out = TensorDescriptor(torch.zeros(64, 64), [48, 64], [64, 1], [32, 32])
    launch = lambda: kernels.short_blocks[(2,)](x, out, SIZE=32)  # noqa: E731
    outside, never = asked(launch, ["out[50, 3]", "out[3, 40]"], stage, target)
    line = kernels.line("short store")
    is_bulk = target == "sm_90a" or stage == "tile-ir"
    cause = "it is outside of the descriptor's shape" if is_bulk else "its mask is false there"
    assert outside.what == (
        f"out[50, 3] was not written: program 1 addresses it at line {line}, but {cause}"
    )
    row = next(line for line in outside.addressed if line.place.line == kernels.line("row"))
    assert row.values["row"][0].item() == 32
    assert "never this one, which is element 232" in never.what


def test_tensors_that_kernels_get_the_addresses_of_are_named_as_the_script_does(monkeypatch):
    outs = [torch.zeros(4), torch.zeros(4), torch.zeros(4)]
    monkeypatch.setattr(kernels, "outs", outs, raising=False)
    line, found = kernels.line("address store"), {}

    def look(debugger):
        at = debugger.at_stop
        if debugger.stop.reason is not Reason.END:
            found["stop"] = debugger.stop.detail[0]
            return
        found["why"] = why(at, "outs[1][2]")
        found["missed"] = [why_not_written(at, f"outs[{t}][3]").what for t in (1, 2)]
        with pytest.raises(UsageError, match=r"outside of `outs.1.`, whose shape is .4."):
            why(at, "outs[1][4]")

    with debugging(Scripted([look, Continue(), look])) as debugger:
        debugger.add(BreakKind.END)
        debugger.add(BreakKind.WRITE, "outs[1][2]")
        ptrs = torch.tensor([out.data_ptr() for out in outs])
        kernels.by_address[(2,)](ptrs, torch.arange(4.0), SIZE=4)
    assert found["stop"] == f"outs[1][2] was written by program 1 at line {line}"
    assert found["why"].what == f"outs[1][2] is 4: written by program 1 at line {line}"
    assert [name for each in found["why"].computed for name in each.loads] == ["x_ptr"]
    assert found["missed"] == [
        f"outs[1][3] was not written: program 1 addresses it at line {line}, "
        "but its mask is false there",
        f"outs[2][3] was not written: the store at line {line}, to addresses from memory, "
        "never addresses it",
    ]
