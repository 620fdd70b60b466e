"""Pass diffs of real kernels add up: each op that came or went is in a change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tkdebug.cli import main
from tkdebug.instrument.passes.diff import PassDiff
from tkdebug.instrument.passes.kernel_passes import KernelPasses, load_kernel_passes
from tkdebug.instrument.session import Session
from tkdebug.knobs import KNOBS

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module", params=["attention", "layer_norm"])
def kernels(request, tmp_path_factory) -> list[KernelPasses]:
    path = tmp_path_factory.mktemp("accounting") / "run.tkd"
    script = EXAMPLES / f"{request.param}.py"
    with KNOBS.scope(cross_compile="sm_90a"):
        assert main(["run", "--no-tui", "--quick", "-o", str(path), str(script)]) == 0
    with Session.open(path) as session:
        loaded = [load_kernel_passes(session, kernel) for kernel in session.kernels()]
    return [passes for passes in loaded if passes is not None]


def compared(kernels: list[KernelPasses]) -> Iterator[tuple[KernelPasses, PassDiff]]:
    for passes in kernels:
        for diff in passes.diffs:
            if diff.number and diff.before != diff.after:
                yield passes, diff


def test_changes_account_for_every_op_that_came_or_went(kernels) -> None:
    for passes, diff in compared(kernels):
        before = set(passes.stages[diff.before].op_ids)
        after = set(passes.stages[diff.after].op_ids)
        gone = {op.id for c in diff.changes for op in c.old if c.kind in ("removed", "replaced")}
        new = {op.id for c in diff.changes for op in c.new if c.kind in ("added", "replaced")}
        assert gone - after == before - after, diff.name
        assert new - before == after - before, diff.name


def test_every_change_has_the_rule_that_made_it(kernels) -> None:
    assert [
        (diff.name, change.kind, change.detail)
        for _, diff in compared(kernels)
        for change in diff.changes
        if not change.rule
    ] == []


def test_every_op_of_every_stage_has_facts_and_a_line_of_text(kernels) -> None:
    for passes, diff in compared(kernels):
        stage = passes.stages[diff.after]
        assert set(stage.facts) == set(stage.lines) == set(stage.op_ids)
        for id_, facts in stage.facts.items():
            # The short name is in the text of its own line: "tt.load", "scf.for".
            assert facts.name in stage.line_text(id_), (diff.name, id_)
