"""Watched values are the same in interpreted Tile IR, expanded Tile IR and GPU IR."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from watch_support import last_launch, recorded, spot, watched
from watched_kernels import branches, elementwise, loops, matmul, waiting

from tkdebug import knobs
from tkdebug.errors import UnsupportedError
from tkdebug.watches.records import WatchedValue

TARGETS = (None, "sm_90a")


def run_matmul(k: int = 96, programs: int = 2) -> None:
    torch.manual_seed(1)
    a, b = torch.randn(64 * programs, k).half(), torch.randn(k, 32).half()
    matmul[(programs,)](a, b, torch.zeros(64 * programs, 32), k, M=64, N=32, BK=32)


def plain(values) -> list[dict[str, object]]:
    """Records without what differs between launches; NaNs made equal."""
    found = [dataclasses.asdict(dataclasses.replace(value, launch_id=0)) for value in values]
    return [{name: repr(field) for name, field in one.items()} for one in found]


def check(run, *watches, targets=TARGETS) -> list[list[WatchedValue]]:
    """Return the watched values of the last launch; its GPU IR records the same bits."""
    with watched(*watches) as found:
        launch = last_launch(run)
        values = [one.values for one in found]
    everything = sorted((v for each in values for v in each), key=lambda v: v.order)
    for target in targets:
        assert plain(recorded(launch, target).values) == plain(everything)
    return values


def test_accumulator_by_program_and_iteration() -> None:
    (values,) = check(
        run_matmul, lambda: spot(matmul, "acc +=", "acc"), targets=("sm_80", *TARGETS)
    )
    assert [(v.program_id[0], v.iteration) for v in values] == [
        (program, iteration) for program in range(2) for iteration in range(3)
    ]
    assert {(v.type, v.shape, v.elements) for v in values} == {("fp32[64, 32]", (64, 32), 2048)}


def test_numbers_are_those_of_torch() -> None:
    x = torch.randn(300)
    x[3], x[5], x[7], x[9], x[11] = math.nan, math.inf, -math.inf, 0.0, -0.0

    def run() -> None:
        elementwise[(3,)](x, torch.zeros(300), 300, BLOCK=128)

    first, whole = check(
        run,
        lambda: spot(elementwise, "x = tl.load", "x"),
        lambda: spot(elementwise, "x = tl.load", "x", whole=True),
    )
    value, rest = first[0], x[:128].double()
    finite = rest[rest.isfinite()]
    assert (value.nan, value.inf, value.zeros) == (1, 2, 2)
    assert (value.minimum, value.maximum) == (-math.inf, math.inf)
    assert value.mean == pytest.approx(float(finite.mean()), rel=1e-12)
    exponents = [math.floor(math.log2(abs(v))) for v in finite.tolist() if v]
    assert dict(value.histogram) == {e: exponents.count(e) for e in set(exponents)}
    # The tail is padded.
    assert first[2].zeros == 3 * 128 - 300
    torch.testing.assert_close(
        torch.tensor(whole[0].values()), rest.float(), rtol=0, atol=0, equal_nan=True
    )


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.int8,
        torch.uint8,
        torch.int64,
        torch.bool,
    ],
)
def test_element_types(dtype: torch.dtype) -> None:
    x = (torch.arange(64) * 7 % 251 - 100).to(dtype)

    def run() -> None:
        elementwise[(1,)](x, torch.zeros(64, dtype=dtype), 64, BLOCK=64)

    summary, whole = check(
        run,
        lambda: spot(elementwise, "x = tl.load", "x"),
        lambda: spot(elementwise, "x = tl.load", "x", whole=True),
    )
    assert whole[0].values() == tuple(x.double().tolist())
    assert summary[0].minimum == float(x.double().min())
    assert summary[0].maximum == float(x.double().max())
    assert summary[0].mean == pytest.approx(float(x.double().mean()), rel=1e-12)


@pytest.mark.parametrize("scale", [1e300, 1e-300, 5e-324, 1e30])
def test_means_of_numbers_of_any_size(scale: float) -> None:
    x = torch.tensor([1.0, 3.0, -2.0, 4.0], dtype=torch.float64) * scale

    def run() -> None:
        elementwise[(1,)](x, torch.zeros_like(x), 4, BLOCK=4)

    (values,) = check(run, lambda: spot(elementwise, "x = tl.load", "x"))
    assert values[0].mean == pytest.approx(1.5 * scale, rel=1e-9, abs=5e-324)


def test_all_nan_has_no_extremes() -> None:
    x = torch.full((16,), math.nan)

    def run() -> None:
        elementwise[(1,)](x, torch.zeros(16), 16, BLOCK=16)

    (values,) = check(run, lambda: spot(elementwise, "x = tl.load", "x"))
    assert math.isnan(values[0].minimum)
    assert math.isnan(values[0].mean)
    assert values[0].histogram == ()


def test_programs_and_conditions() -> None:
    def names(values) -> list[tuple[int, int]]:
        return [(v.program_id[0], v.iteration) for v in values]

    def acc(**options):
        return lambda: spot(matmul, "acc +=", "acc", **options)

    found = check(
        lambda: run_matmul(programs=4),
        acc(programs="1"),
        acc(programs="0:2+3", condition="iteration == 2"),
        acc(condition="pid == 2 and acc.max() > -1000"),
        acc(condition="acc.isnan().any()"),
        acc(condition="pid[0] % 2 == 1 and not iteration < 2 or acc.numel() == 1"),
        acc(condition="abs(acc.mean()) * 2 + 1 > 1 and -acc.min() >= 0 and pid < 1"),
    )
    assert [names(values) for values in found] == [
        [(1, 0), (1, 1), (1, 2)],
        [(0, 2), (1, 2), (3, 2)],
        [(2, 0), (2, 1), (2, 2)],
        [],
        [(1, 2), (3, 2)],
        [(0, 0), (0, 1), (0, 2)],
    ]


def test_branches_and_calls_have_chains() -> None:
    x = torch.randn(512)

    def run() -> None:
        elementwise[(4,)](x, torch.zeros(512), 512, BLOCK=128)

    from watched_kernels import twice

    odd, even, inner = check(
        run,
        lambda: spot(elementwise, "y = y + 1", "y"),
        lambda: spot(elementwise, "y = y - 1", "y"),
        lambda: spot(twice, "doubled =", "doubled"),
    )
    assert [v.program_id[0] for v in odd] == [1, 3]
    assert [v.program_id[0] for v in even] == [0, 2]
    assert [frame.function for frame in inner[0].frames] == ["elementwise", "twice"]


def test_loops_count_iterations() -> None:
    def run() -> None:
        loops[(1,)](torch.zeros(1, dtype=torch.int32), 3)

    part, i, total, second = check(
        run,
        lambda: spot(loops, "part =", "part"),
        lambda: spot(loops, "for i", "i"),
        lambda: spot(loops, "total = total", "total"),
        lambda: spot(loops, "first, second", "second"),
    )
    assert [(v.iteration, v.minimum) for v in part] == list(enumerate([0, 1, 10, 11, 20, 21]))
    assert [v.minimum for v in i] == [0, 1, 2]
    assert [v.minimum for v in total] == [31, 15, 7, 3]
    assert [v.minimum for v in second] == [3]


def test_name_without_value_is_said_and_kernel_runs(capsys) -> None:
    out = torch.zeros(4, dtype=torch.int32)
    with watched(lambda: spot(branches, "tl.store(out_ptr, i)", "late")) as (found,):
        last_launch(lambda: branches[(1,)](out, 4))
    assert found.seen == 0
    line = capsys.readouterr().err
    assert "`late` has no value here: " in line
    assert "it is not watched" in line


def test_what_does_not_fit_is_counted() -> None:
    with watched(lambda: spot(matmul, "acc +=", "acc", whole=True)) as (found,):
        launch = last_launch(run_matmul)
        seen = recorded(launch, "sm_80", budget=3 * 8200)
    assert (found.seen, found.kept) == (6, 6)
    (count,) = seen.counts
    assert (count.seen, count.kept, len(seen.values)) == (6, 2, 2)


def test_what_does_not_fit_is_one_line_with_the_room_that_there_was(capsys) -> None:
    x = torch.ones(300)
    loaded = lambda: spot(elementwise, "x = tl.load", "x")  # noqa: E731
    with knobs.scope(watch_buffer_bytes=700), watched(loaded):
        elementwise[(3,)](x, torch.zeros(300), 300, BLOCK=128)
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "1 of 3 values were kept, there was no room for more; choose programs (@0)" in line
    assert line.endswith("or have TKDEBUG_WATCH_BUFFER say more than 700 bytes a launch\n")


def test_loops_that_wait_for_memory_are_not_watched_natively() -> None:
    def run() -> None:
        waiting[(1,)](torch.ones(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32))

    check(run, lambda: spot(waiting, "done =", "done"))
    with watched(lambda: spot(waiting, "seen =", "seen")):
        launch = last_launch(run)
    with pytest.raises(UnsupportedError, match="`while` that goes on by what it loads"):
        recorded(launch, None)
