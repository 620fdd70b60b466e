"""The IR after any pass: which there are, stops in it, layouts, registers, shared memory."""

import debugged_kernels as kernels
import pytest
import torch
from debugged_kernels import FILE, line
from fronts import Scripted, debugging

from tkdebug import TensorDescriptor
from tkdebug.compiler.dialects import arith
from tkdebug.debugger.breakpoints import BreakKind
from tkdebug.debugger.console.commands import find_command
from tkdebug.debugger.console.shell import Console
from tkdebug.debugger.console.terminal import completions
from tkdebug.debugger.goals import ChangeStage, Continue, Step, StepKind
from tkdebug.debugger.ir_text import held_by, holders, layout_of, lines_around
from tkdebug.debugger.session import Comparison
from tkdebug.debugger.stages import Stage, all_stages, parse_stage
from tkdebug.debugger.stops import Reason
from tkdebug.debugger.values import Unavailable, buffers
from tkdebug.errors import UsageError

TILE, GPU = ["fold", "sweep"], ["sweep", "lay-out", "sweep"]
OP = Step(StepKind.OP)


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ("tile-ir", Stage("tile-ir")),
        ("gpu-ir", Stage("gpu-ir")),
        ("tile-ir:fold", Stage("tile-ir", "fold")),
        ("gpu-ir after lay-out", Stage("gpu-ir", "lay-out")),
        ("gpu-ir:sweep:2", Stage("gpu-ir", "sweep", 2)),
    ],
)
def test_a_stage_is_an_ir_and_the_pass_before_it(text, stage):
    assert parse_stage(text, TILE, GPU) == stage


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("gpu-ir:lay-ou", "there is no pass lay-ou; did you mean gpu-ir:lay-out?"),
        ("gpu-ir:fold", "fold is no pass of gpu-ir; did you mean tile-ir:fold?"),
        ("tile-ir:sweep:2", "sweep runs once; got run 2"),
        ("gpu-ir:sweep:3", "sweep runs 2 times; got run 3"),
        ("tile", "expected tile-ir, gpu-ir, or one of them:PASS; did you mean tile-ir?"),
        ("gpu-ir:qqqq", "there is no pass qqqq; `stage` lists them"),
    ],
)
def test_an_unknown_stage_is_refused_and_the_nearest_offered(text, problem):
    with pytest.raises(UsageError) as error:
        parse_stage(text, TILE, GPU)
    assert str(error.value) == f"stage {text}: {problem}"


def test_every_listed_stage_can_be_asked_for():
    found = all_stages(TILE, GPU)
    assert found[0] == "tile-ir"
    assert "gpu-ir:sweep:2" in found
    assert [str(parse_stage(text, TILE, GPU)) for text in found] == found


def multiplied(steps, stage="gpu-ir", n=96, at="multiply"):
    torch.manual_seed(0)
    a, b, out = torch.randn(32, n).half(), torch.randn(n, 32).half(), torch.zeros(32, 32)
    front = Scripted(steps)
    with debugging(front, target="sm_80") as debugger:
        debugger.choose_stage(stage)
        debugger.add_line(FILE, line(at))
        kernels.product[(1,)](a, b, out, n, SIZE=32)
    torch.testing.assert_close(out, a.float() @ b.float(), rtol=1e-2, atol=1e-1)
    return front


def test_a_layout_says_who_holds_an_element():
    seen = {}

    def look(debugger):
        inspection = debugger.at_stop
        value = inspection.ir_value("acc")
        layout = layout_of(value, "acc")
        held = holders(layout, (3, 17), "acc")
        for one in held:
            assert held_by(layout, one.warp, one.lane)[one.register] == (3, 17)
        everything = {
            element
            for warp in range(layout.in_size("warp"))
            for lane in range(32)
            for element in held_by(layout, warp, lane)
        }
        seen["elements"], seen["held"] = len(everything), len(held)
        with pytest.raises(UsageError, match=r"acc\[3, 32\]: no element of a tile of shape"):
            holders(layout, (3, 32), "acc")
        with pytest.raises(UsageError, match="lane 32: the layout has lanes 0 to 31"):
            held_by(layout, 0, 32)

    multiplied([look])
    assert seen == {"elements": 32 * 32, "held": 1}


def test_tile_ir_has_no_layouts():
    def look(debugger):
        value = debugger.at_stop.ir_value("acc")
        with pytest.raises(UsageError, match="Tile IR, without layouts"):
            layout_of(value, "acc")

    multiplied([look], "tile-ir")


def until(name, limit=400):
    """Steps by ops until one of that name is about to run."""

    def step(debugger):
        return None if debugger.at_stop.here.op.name == name else OP

    return [step] * limit


def slots_of(debugger):
    inspection = debugger.at_stop
    here = inspection.here
    return [
        [(len(slot.copies), slot.is_poison) for slot in one.slots]
        for one in buffers(here.run, 0)
        if len(one.slots) > 1
    ]


def test_a_copy_is_on_its_way_until_the_wait():
    seen = []

    def look(debugger):
        seen.append((debugger.at_stop.here.op.name, slots_of(debugger)))

    multiplied([*until("ttg.async_wait"), look, OP, look], at="depth")
    (before, waiting), (_, landed) = seen
    assert before == "ttg.async_wait"
    assert waiting == [[(1, True), (1, True), (0, True)]] * 2
    assert landed == [[(0, False), (1, True), (0, True)]] * 2


def test_bulk_copies_land_at_mbarriers():
    torch.manual_seed(0)
    a, b = (torch.randint(-4, 5, (64, 64)).half() for _ in range(2))
    out = torch.zeros(64, 64).half()
    seen = []

    def look(debugger):
        here = debugger.at_stop.here
        found = buffers(here.run, 0)
        seen.append([slot.mbarrier for one in found for slot in one.slots if slot.mbarrier])
        seen.append([len(slot.copies) for one in found for slot in one.slots if slot.copies])

    front = Scripted([*until("ttng.wait_barrier"), look, OP, look])
    with debugging(front, target="sm_90a") as debugger:
        debugger.choose_stage("gpu-ir")
        debugger.stop_at_next_launch()
        described = (
            TensorDescriptor.from_tensor(a, [64, 32]),
            TensorDescriptor.from_tensor(b, [32, 64]),
        )
        kernels.described_product[(1,)](*described, out, 64, M=64, N=64, K=32)
    assert torch.equal(out.float(), (a.float() @ b.float()).half().float())
    waiting, copies, landed, left = seen
    assert "0 to arrive" in waiting[0] or "1 to arrive" in waiting[0]
    assert waiting != landed
    assert sum(copies) == sum(left) + 2


def test_values_have_the_names_of_the_text():
    seen = {}

    def look(debugger):
        inspection = debugger.at_stop
        names = inspection.code.printed.names
        name = names[inspection.ir_value("acc")]
        seen["same"] = torch.equal(
            inspection.evaluate(f"%{name} + 1"), inspection.evaluate("acc + 1")
        )
        seen["modulo"] = inspection.evaluate("7 %4")
        with pytest.raises(UsageError, match="%acq: gpu-ir has no value of this name; did you"):
            inspection.ask("%acq")
        found = lines_around(inspection.code, inspection.here.op, 2, 2)
        seen["current"] = [each.is_current for each in found]
        seen["source"] = next(each.source for each in found if each.is_current)

    multiplied([look])
    assert seen == {
        "same": True,
        "modulo": 3,
        "current": [False, False, True, False, False],
        "source": line("multiply"),
    }


def test_a_launch_begins_again_at_another_stage():
    where = []

    def look(debugger):
        where.append((str(debugger.at_stop.code.stage), debugger.stop.place.line))

    def change(debugger):
        debugger.choose_stage("gpu-ir:assign-layouts")
        return ChangeStage()

    front = multiplied([look, change, look, Continue(), look], "tile-ir")
    assert where == [
        ("tile-ir", line("multiply")),
        ("gpu-ir:assign-layouts", line("depth")),
        ("gpu-ir:assign-layouts", line("multiply")),
    ]
    assert [stop.reason for stop in front.stops[:3]] == [
        Reason.BREAKPOINT,
        Reason.STEP,
        Reason.BREAKPOINT,
    ]
    assert front.logged == []


def test_a_breakpoint_stops_at_the_op_of_a_value():
    where = []

    def find(debugger):
        inspection = debugger.at_stop
        names = inspection.code.printed.names
        (result,) = next(op for op in inspection.code.context if op.name == "arith.select").results
        debugger.add(BreakKind.OP, f"%{names[result]}")
        return Continue()

    def look(debugger):
        where.append(debugger.at_stop.here.op.name)

    multiplied([find, look], at="depth")
    assert where == ["arith.select"]


def test_the_tab_key_offers_stages_and_values():
    offered = []

    def look(debugger):
        console = Console(find_command)
        console.attach(debugger)
        offered.append(completions(console, "stage gpu-ir:pipeline-l", "l"))
        offered.append("acc" in completions(console, "p %ac", "ac"))

    multiplied([look])
    assert offered == [["loops"], True]


def test_time_runs_back_in_gpu_ir():
    moments = []

    def look(debugger):
        moments.append((debugger.stop.moment, slots_of(debugger)))

    back = Step(StepKind.OP, backwards=True)
    multiplied([OP, look, OP, OP, look, back, back, look])
    assert moments[0] == moments[2] != moments[1]


def test_what_cannot_be_asked_after_passes_is_refused():
    def look(debugger):
        with pytest.raises(UsageError, match="`acc` cannot be assigned at gpu-ir: passes may have"):
            debugger.assign("acc", "0")

    front = multiplied([look])
    assert front.stops


def test_a_name_whose_value_is_gone_says_which_pass_dropped_it():
    reasons = []

    def look(debugger):
        reasons.append(debugger.at_stop.read("_unused"))

    multiplied([look], "tile-ir:eliminate-dead-code")
    (found,) = reasons
    assert isinstance(found, Unavailable)
    assert found.reason.startswith("at tile-ir:eliminate-dead-code it is gone: eliminate-dead-code")


def test_stepping_out_ends_in_the_caller_where_passes_left_no_return():
    x, out = torch.arange(8.0), torch.zeros(8)
    front = Scripted([Step(StepKind.OUT)])
    with debugging(front, target="sm_80") as debugger:
        debugger.choose_stage("gpu-ir")
        debugger.add_line(FILE, line("scaled body"))
        kernels.twice_called[(2,)](x, out, BLOCK=4)
    inside, outside = front.stops[:2]
    assert inside.place.function == "scaled"
    assert (outside.place.function, outside.place.line) == ("twice_called", line("second call"))


def test_a_kernel_that_does_not_compile_to_a_stage_is_run_at_tile_ir_and_said_so(monkeypatch):
    from tkdebug.compiler.passes.gpu.assign_layouts import AssignLayouts
    from tkdebug.errors import CompileError

    def refuse(self, module, rewriter):
        raise CompileError("kernel.py:7: no layout for a test")

    monkeypatch.setattr(AssignLayouts, "run", refuse)
    x, out = torch.arange(4.0), torch.zeros(4)
    front = Scripted([])
    with debugging(front, target="sm_89") as debugger:
        debugger.choose_stage("gpu-ir")
        for _ in range(2):
            debugger.stop_at_next_launch()
            kernels.twice_called[(1,)](x, out, BLOCK=4)
    assert len(front.stops) == 2
    assert front.logged == [
        "twice_called cannot be run at gpu-ir: kernel.py:7: no layout for a test; "
        "it runs at tile-ir"
    ]


# What is stored under the debugger, and what a launch stores


def stored(change=None, stage="tile-ir", steps=(), make=None):
    """Return the log of a launch whose IR after passes was changed."""
    x, out = torch.arange(1.0, 9.0), torch.zeros(8)
    front = Scripted(steps)
    kernel = kernels.twice_called[(2,)](x, out, BLOCK=4)
    if change is not None:
        for op in kernel.module.walk():
            change(op)
    try:
        with debugging(front) as debugger:
            debugger.choose_stage(stage)
            debugger.stop_at_next_launch()
            kernels.twice_called[(2,)](x, out, BLOCK=4)
    finally:
        kernels.twice_called.device_caches.clear()
    return front.logged, out


def test_what_a_launch_stores_otherwise_is_said_with_the_first_element():
    def wrong(op):
        if arith.Constant.matches(op) and op.attributes.get("value") == 3.0:
            op.attributes["value"] = 3.5

    logged, out = stored(wrong)
    assert logged == [
        "launch 1 of twice_called: at tile-ir, before any pass, it stores something else than a "
        "launch does: out_ptr[0] is 8, the launch gives 9, by 1; 8 of 8 elements differ"
    ]
    assert torch.equal(out, 8 * torch.arange(1.0, 9.0))


def test_nothing_is_said_where_both_store_the_same():
    assert stored()[0] == []
    assert stored(stage="gpu-ir")[0] == []


def test_nothing_is_said_after_an_assignment():
    def assign(debugger):
        debugger.assign("x", "x + 1")

    def at_second_call(debugger):
        debugger.add_line(FILE, line("second call"))
        return Continue()

    logged, _ = stored(steps=[at_second_call, assign])
    assert logged == []


ONES = torch.ones(200)


@pytest.mark.parametrize(
    ("comparison", "got", "is_told"),
    [
        (Comparison(0.0, False), ONES.index_fill(0, torch.tensor([3]), 1 + 2**-20), True),
        (Comparison(1e-3, False), ONES.index_fill(0, torch.tensor([3]), 1.0005), False),
        (Comparison(1e-3, False), ONES.index_fill(0, torch.tensor([3]), 1.002), True),
        (Comparison(1e-3, True), ONES.index_fill(0, torch.tensor([3]), 9.0), False),
        (Comparison(1e-3, True), ONES.index_fill(0, torch.tensor([3, 4]), 9.0), True),
        (Comparison(1e-3, False), ONES.index_fill(0, torch.tensor([3]), float("nan")), True),
        (Comparison(None, False), ONES * 5, False),
        (Comparison(None, False), ONES.index_fill(0, torch.tensor([3]), float("inf")), True),
    ],
)
def test_what_rounding_may_change_is_not_said(comparison, got, is_told):
    told = comparison.difference({"out": got}, {"out": ONES}, largest=0.0)
    assert told.startswith("out[") is is_told
    assert comparison.difference({"out": got}, {"out": got.clone()}, largest=0.0) == ""


def test_large_inputs_let_small_differences_be_rounding():
    got = ONES + 0.5
    comparison = Comparison(1e-3, False)
    assert comparison.difference({"out": got}, {"out": ONES}, largest=1000.0) == ""
    assert comparison.difference({"out": got}, {"out": ONES}, largest=100.0)
