"""`tkdebug demo`: the session that comes with the package can be read, and shows what it should."""

import re
from pathlib import Path

import pytest

from tkdebug.cli.commands.demo import recorded_demo
from tkdebug.instrument.home.model import model_of
from tkdebug.instrument.session import Session

ROOT = Path(__file__).parents[2]
SCRIPT = "examples/demo/layer.py"
AGAIN = "run python docs/demo_session.py"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("demo") / "demo.tkd"
    path.write_bytes(recorded_demo())
    with Session.open(path) as session:  # of this version's schema
        return model_of(session)


def test_the_demo_is_that_of_its_script(model):
    (source,) = (one.text for one in model.files if one.file == SCRIPT)
    assert source == (ROOT / SCRIPT).read_text(), AGAIN
    assert (ROOT / "tkdebug/cli/demo.tkd.xz").stat().st_size <= 300_000


def test_the_demo_has_a_fault_a_cause_advice_heat_and_values(model):
    kinds = {fault.kind: fault for fault in model.faults}
    assert kinds["oob-load"].extent is not None
    assert kinds["mismatch"].cause.edits
    assert len(model.remarks) >= 2
    by_kernel = {kernel.name: kernel.variants[0] for kernel in model.kernels}
    heat = [line.heat.get("predicted", 0) for line in by_kernel["matmul_kernel"].lines]
    assert sum(heat) == pytest.approx(1, abs=0.01)
    assert any(line.watches for line in by_kernel["matmul_kernel"].lines)
    stages = [stage.name for stage in by_kernel["softmax_kernel"].code.stages]
    assert {"tile-ir", "gpu-ir", "llvm-ir", "ptx", "sass"} <= set(stages)
    assert [step.kind for step in model.steps] == ["mismatch", "fault", "advice"]


def test_the_demo_says_nothing_of_the_machine_it_was_made_on():
    texts = recorded_demo().decode("utf-8", "replace")
    assert re.findall(r"/(?:home|root|tmp|usr|work)/\S*", texts) == []


def test_the_demo_is_a_page_or_a_text(run_main, tmp_path):
    page = tmp_path / "out.html"
    assert run_main("demo", "-o", str(page))[::2] == (0, "")
    assert "1 comparison failed, 1 fault" in page.read_text()
    status, out, err = run_main("demo")  # stdout is no terminal here
    assert (status, err) == (0, "")
    assert out.startswith("examples/demo/layer.py (interpret): exit status 1")
