import time

import pytest
from answer_schemas import valid
from launching import launch
from warm_python import run_module

from tkdebug.cli import main
from tkdebug.instrument.analyses.ranks import compare_ranks
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.session import Session

SCRIPT = """
import torch, torch.distributed as dist, triton, triton.language as tl

@triton.jit
def fill(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 1.0)

dist.init_process_group("gloo")
x = torch.zeros(64, device="cuda")
for _ in range(3 + dist.get_rank()):
    fill[(1,)](x, BLOCK=64)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two hosts' sessions: rank 1 takes twice as long."""
    for rank in (0, 1):
        monkeypatch.setenv("RANK", str(rank))
        recorder = Recorder(tmp_path / f"rank{rank}.tkd", script="k.py", output=False).start()
        for step in range(4):
            launch("step", duration_ns=1000 * (1 + rank), start_ns=10_000 * step + 500 * rank)
        recorder.stop(0)
    return tmp_path


def test_the_slowest_rank_and_the_spread_are_found(folder):
    with Session.open(folder / "rank0.tkd") as one, Session.open(folder / "rank1.tkd") as two:
        ranks = compare_ranks((one, two))
    assert [(t.rank, t.launches, t.total_ns) for t in ranks.totals] == [(0, 4, 4000), (1, 4, 8000)]
    (step,) = ranks.kernels
    assert (step.slowest, step.spread, step.skew_ns) == (1, 2.0, 500)


def test_a_folder_is_reported_rank_by_rank(folder, capfd):
    assert main(["report", str(folder)]) == 0
    out = capfd.readouterr().out
    assert "rank 1" in out
    assert "+100.0 %" in out
    assert main(["report", str(folder), "--format", "json"]) == 0
    data = valid("ranks", capfd.readouterr().out)
    assert data["kernels"][0]["slowest_rank"] == 1
    assert all(rank["ended"] for rank in data["ranks"])
    assert main(["view", str(folder)]) == 0
    assert "slowest" in capfd.readouterr().out


def test_a_rank_that_has_not_ended_is_reported(tmp_path, capfd):
    path = tmp_path / "rank0.tkd"
    recorder = Recorder(path, script="k.py", output=False).start()
    launch("step")
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        with Session.open(path) as session:
            if session.launch_count():
                break
    assert main(["report", str(tmp_path)]) == 0
    recorder.stop(0)
    assert "did not end: killed, or still running" in capfd.readouterr().out


def test_runs_that_have_the_same_rank_are_not_added_up(folder, capfd):
    (folder / "another.tkd").write_bytes((folder / "rank1.tkd").read_bytes())
    assert main(["report", str(folder)]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert f"{folder}/rank1.tkd: has launches of rank 1, as another.tkd has" in err


def test_a_folder_without_runs_is_one_line(tmp_path, capfd):
    assert main(["report", str(tmp_path)]) == 2
    assert "a folder without recorded runs" in capfd.readouterr().err


def test_two_ranks_of_torchrun_are_in_one_session(tmp_path):
    script, path = tmp_path / "train.py", tmp_path / "run.tkd"
    script.write_text(SCRIPT)
    words = ["--nproc_per_node=2", "-m", "tkdebug", "run", "--no-tui", "-o", path, script]
    done = run_module("torch.distributed.run", *words)
    assert done.returncode == 0, done.stderr
    with Session.open(path) as session:
        ranks = compare_ranks((session,))
    assert [(total.rank, total.launches) for total in ranks.totals] == [(0, 3), (1, 4)]
    (fill,) = ranks.kernels
    assert fill.launches == {0: 3, 1: 4}
    assert fill.skew_ns is not None


def test_ranks_of_one_kernel(folder, capfd):
    assert main(["report", str(folder), "--kernel", "no"]) == 2
    assert "--kernel no: no such kernel; there are" in capfd.readouterr().err
    with Session.open(sorted(folder.glob("*.tkd"))[0]) as session:
        kernel = session.kernel_summaries()[0].kernel
    assert main(["report", str(folder), "--kernel", kernel]) == 0
    assert kernel in capfd.readouterr().out
