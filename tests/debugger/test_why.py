"""Slices: the faulty line is near their beginning, and values are those of a reference."""

from pathlib import Path

import debugged_kernels
import pytest
import torch
import wrong_kernels
import wrong_library_kernels
from fronts import Scripted, debugging

from tkdebug.debugger.breakpoints import BreakKind
from tkdebug.debugger.goals import Continue, RunToLine
from tkdebug.debugger.value_text import element_text
from tkdebug.debugger.why.answers import why, why_nan
from tkdebug.debugger.why.unwritten import why_not_written
from tkdebug.debugger.why.writers import Writers
from tkdebug.errors import UsageError
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor

FILE = wrong_kernels.__file__


def faulty_line(kernel):
    code = kernel.fn.__code__
    first, lines = code.co_firstlineno, Path(code.co_filename).read_text().splitlines()
    return next(n for n in range(first, len(lines)) if lines[n - 1].endswith("# WRONG"))


def asked(kernel, grid, arguments, ask, steps=(), **constants):
    answers = []
    front = Scripted([*steps, lambda debugger: answers.append(ask(debugger.at_stop))])
    with debugging(front) as debugger:
        if steps:
            debugger.stop_at_next_launch()
        else:
            debugger.add(BreakKind.END)
        kernel[grid](*arguments, **constants)
    return answers[0]


X = torch.arange(64.0).reshape(8, 8) / 8
CASES = [
    (wrong_kernels.softmax_over_columns, (X, torch.zeros(8, 8)), "out[2, 3]", dict(R=8, C=8)),
    (wrong_kernels.unrescaled, (X, torch.zeros(1), 64), "out[0]", dict(BLOCK=16)),
    (wrong_kernels.overwritten, (X, X, torch.zeros(16, 16), 0), "c[3, 4]", dict(N=16)),
    (wrong_kernels.wrong_stride, (X, torch.zeros(8, 8), 8, 1), "out[1, 2]", dict(N=8)),
    (wrong_kernels.masked_by_one, (X, torch.zeros(8)), "out[5]", dict(N=8)),
    (wrong_kernels.wrong_scale, (X, torch.zeros(64), 40), "out[7]", dict(BLOCK=64)),
    (wrong_kernels.logarithms, (X, torch.zeros(1)), "out[0]", dict(BLOCK=64)),
]


@pytest.mark.parametrize(("kernel", "arguments", "element", "constants"), CASES)
def test_the_faulty_line_is_among_the_first_three(kernel, arguments, element, constants):
    if kernel is wrong_kernels.overwritten:
        arguments = (torch.ones(16, 48), torch.ones(48, 16), torch.zeros(16, 16), 48)
    found = asked(kernel, (1,), arguments, lambda i: why(i, element), **constants)
    assert faulty_line(kernel) in [line.place.line for line in found.computed[:3]], found
    assert found.program == 0


def random(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


LIBRARY = {
    "rms_norm": lambda: (
        (random(3, 10), random(10), torch.zeros(3, 10), 10, 1e-6),
        "out[1, 4]",
        dict(BLOCK=16),
    ),
    "rope": lambda: (
        (random(4, 16), random(4, 8), random(4, 8), torch.zeros(4, 16)),
        "out[2, 3]",
        dict(HALF=8),
    ),
    "swiglu": lambda: ((random(50), random(50), torch.zeros(50), 50), "out[40]", dict(BLOCK=32)),
    "attention": lambda: (
        (random(16, 16), random(64, 16), random(64, 16), torch.zeros(16, 16), 0.25),
        "out[3, 5]",
        dict(N=64, B=16, D=16),
    ),
    "grouped_scale": lambda: (
        (random(64), random(8), torch.zeros(64)),
        "out[30]",
        dict(GROUP=8, BLOCK=16),
    ),
    "moving_average": lambda: ((random(17), torch.zeros(16), 16), "out[15]", dict(BLOCK=16)),
    "layer_norm_of": lambda: (
        (random(10) + 3, torch.zeros(10), 10, 1e-6),
        "out[4]",
        dict(BLOCK=16),
    ),
    "transposed": lambda: ((random(8, 16), torch.zeros(16, 8)), "out[3, 2]", dict(R=8, C=16)),
    "prefix": lambda: ((random(16), torch.zeros(16)), "out[3]", dict(BLOCK=16)),
    "quantised": lambda: (
        (random(16), torch.zeros(16, dtype=torch.int8), torch.zeros(1)),
        "out[5]",
        dict(BLOCK=16),
    ),
    "gathered": lambda: (
        (random(8, 16), torch.tensor([3, 1, 0, 5]), torch.zeros(4, 16)),
        "out[0, 2]",
        dict(D=16),
    ),
    "huber": lambda: ((random(16), random(16) + 1, torch.zeros(1), 0.7), "out[0]", dict(BLOCK=16)),
    "momentum": lambda: ((random(16), random(16), random(16), 0.1, 0.9), "p[3]", dict(BLOCK=16)),
}


@pytest.mark.parametrize("name", LIBRARY)
def test_faulty_lines_of_library_kernels_are_among_the_first_three(name):
    kernel = getattr(wrong_library_kernels, name)
    arguments, element, constants = LIBRARY[name]()
    found = asked(kernel, (4,), arguments, lambda i: why(i, element), **constants)
    assert faulty_line(kernel) in [line.place.line for line in found.computed[:3]], found


def test_a_load_at_the_beginning_of_a_long_slice_is_in_it():
    arguments = (-random(3, 10).abs() - 5, torch.tensor([1, 2, 3]), torch.zeros(3), 10)
    kernel = wrong_library_kernels.cross_entropy
    found = asked(kernel, (3,), arguments, lambda i: why(i, "out[2]"), BLOCK=16)
    assert faulty_line(kernel) == found.computed[-1].place.line


def test_a_slice_has_the_elements_that_took_part_and_their_values():
    out = torch.zeros(8)
    kernel = wrong_kernels.masked_by_one
    found = asked(kernel, (1,), (X, out), lambda i: why(i, "out[5]"), N=8)
    load = next(line for line in found.computed if line.loads)
    _, offsets, values = load.loads["x_ptr"]
    assert offsets[0].tolist() == [40, 41, 42, 43, 44]
    assert values[0].tolist() == X[5, :5].tolist()
    assert found.what.startswith("out_ptr[5] is 26.25: written by program 0")


def test_a_scan_with_a_function_of_the_kernel_s_is_followed():
    x, flag, out = torch.arange(8.0), torch.tensor([1, 0, 0, 1, 0, 0, 0, 0]), torch.zeros(8)
    arguments = (x, flag.int(), out)
    found = asked(debugged_kernels.segmented, (1,), arguments, lambda i: why(i, "out[5]"), SIZE=8)
    loads = {name: each for line in found.computed for name, each in line.loads.items()}
    assert sorted(torch.cat(loads["x_ptr"][1]).tolist()) == list(range(6))
    values = [line.values["sums"][0].item() for line in found.computed if "sums" in line.values]
    assert values == [12.0]
    combined = debugged_kernels.line("combined")
    assert [line.place.line for line in found.computed][:3].count(combined) == 1


def test_a_conditional_expression_has_the_value_of_its_variable():
    arguments = (torch.tensor([6.0]), torch.zeros(1), 2)
    chosen = debugged_kernels.line("chosen")
    found = asked(debugged_kernels.halved, (1,), arguments, lambda i: why(i, "out[0]"))
    line = next(each for each in found.computed if each.place.line == chosen)
    assert {name: values[0].item() for name, values in line.values.items()} == {"y": 3.0}


def test_nan_is_followed_to_where_it_was_born():
    kernel = wrong_kernels.logarithms
    arguments = (X, torch.zeros(1))
    found = asked(kernel, (1,), arguments, lambda i: why(i, "out[0]", only_nan=True), BLOCK=64)
    births = [(line.place.line, line.births) for line in found.computed if line.births]
    assert births == [(faulty_line(kernel), ["log of x - 1: 8 elements, 0 of them not finite"])]
    good = (X + 2, torch.zeros(1))
    with pytest.raises(UsageError, match="no NaN"):
        asked(kernel, (1,), good, lambda i: why(i, "out[0]", only_nan=True), BLOCK=64)


def test_first_nan_of_a_tensor_or_tile_is_followed():
    kernel = wrong_kernels.logarithms
    line = faulty_line(kernel)
    steps = (lambda debugger: RunToLine(FILE, line + 1),)
    values = torch.ones(64)
    values[5] = -1.0
    for name, steps_there, what in (
        ("y", steps, "y[5] is nan in program 0"),
        ("out", (), "out_ptr[0] is nan: written by program 0"),
    ):
        given = (values, torch.zeros(1))
        found = asked(kernel, (1,), given, lambda i, n=name: why_nan(i, n), steps_there, BLOCK=64)
        assert found.what.startswith(what)
        assert [one.place.line for one in found.computed if one.births] == [line]
    given = (values, torch.zeros(1))
    with pytest.raises(UsageError, match="`x` has no NaN"):
        asked(kernel, (1,), given, lambda i: why_nan(i, "x"), steps, BLOCK=64)


def test_why_an_element_was_not_written():
    kernel = wrong_kernels.short_mask
    arguments = (X, torch.zeros(70), 16)
    line = faulty_line(kernel)
    ask = lambda i: [why_not_written(i, f"out[{at}]").what for at in (15, 3, 65)]  # noqa: E731
    missed, written, never = asked(kernel, (4,), arguments, ask, BLOCK=4)
    assert missed == (
        f"out_ptr[15] was not written: program 3 addresses it at line {line}, "
        "but its mask is false there"
    )
    assert written == f"out_ptr[3] was written, by program 0 at line {line}"
    assert "addresses elements 0 to 15 of out_ptr in all, never this one" in never
    none = asked(kernel, (4,), arguments, lambda i: why(i, "out[65]"), BLOCK=4)
    assert none.what == "out_ptr[65] is 0: no program of this launch has written it"


def test_a_variable_s_element_and_the_launch_goes_on_as_before():
    out = torch.zeros(1)
    kernel = wrong_kernels.unrescaled
    store = faulty_line(kernel) + 2
    ask = lambda i: why(i, "total")  # noqa: E731
    found = asked(kernel, (1,), (X, out, 64), ask, [RunToLine(FILE, store)], BLOCK=16)
    line = next(line for line in found.computed if line.place.line == faulty_line(kernel))
    assert len(line.values["total"]) == 4  # rounds, the last one first
    assert line.values["total"][0].item() == out.item()
    assert found.what == f"total is {element_text(out)} in program 0"


def test_what_is_no_element_is_refused():
    def refuse(inspection):
        for text, reason in (
            ("out", "expected an element"),
            ("out[i]", "must be numbers"),
            ("out[9]", "outside of"),
            ("y[1]", "not a tensor argument"),
            ("1 +", "expected an element"),
        ):
            with pytest.raises(UsageError, match=reason):
                why(inspection, text)

    asked(wrong_kernels.masked_by_one, (1,), (X, torch.zeros(8)), refuse, N=8)


def test_what_was_loaded_is_known_to_be_of_this_launch_or_an_earlier_one():
    masked, shift = wrong_kernels.masked_by_one, wrong_kernels.logarithms
    x, middle, out = X + 2, torch.zeros(64), torch.zeros(1)
    answers = []
    ask = lambda debugger: answers.append(why(debugger.at_stop, "out[0]").sources)  # noqa: E731
    with debugging(Scripted([ask, Continue(), ask])) as debugger:
        debugger.add(BreakKind.END, "logarithms")
        masked[(1,)](x, middle[:8], N=8)
        shift[(1,)](middle, out, BLOCK=64)
        middle.add_(1)  # by torch: no launch's any more
        shift[(1,)](middle, out, BLOCK=64)
    ((said,), nothing) = answers
    assert said.startswith(
        "x_ptr: launch 1 of masked_by_one has written it; it is not interpreted again, as what it "
        "was given is not remembered: tkdebug debug -c 'b end masked_by_one' -c c "
    )
    assert nothing == ()


def test_what_another_program_wrote_is_reported():
    kernel = wrong_kernels.handed_on
    flag, out = torch.zeros(3, dtype=torch.int32), torch.zeros(3)
    arguments = (torch.ones(3), flag, out)
    found = asked(kernel, (3,), arguments, lambda i: why(i, "out[2]"))
    first = Path(FILE).read_text().splitlines()
    line = next(n for n, text in enumerate(first, 1) if text.endswith("# handed"))
    load = next(each for each in found.computed if "flag_ptr" in each.loads)
    assert load.stored["flag_ptr"] == f"program 0 at line {line + 1}"
    assert [each.program for each in found.earlier] == [0]


def test_an_atomic_says_that_the_value_before_is_not_followed():
    out = torch.zeros(1)
    found = asked(wrong_kernels.added, (4,), (out,), lambda at: why(at, "out[0]"))
    assert "by program 3 at line" in found.what
    assert found.what.endswith("the value before; that one is not followed")


def test_ops_that_are_bound_to_no_variable_are_named_by_their_text():
    x = torch.arange(16.0)
    found = asked(wrong_kernels.unbound, (1,), (x, torch.zeros(16)), lambda i: why(i, "out[3]"))
    values = {
        name: each[0].tolist() for line in found.computed for name, each in line.values.items()
    }
    assert values == {
        "y * 2": [234.0],
        "y": [117.0],
        "tl.sum(x, axis=0) - tl.cumsum(x)": [114.0],
        "tl.cumsum(x)": [6.0],
        "tl.sum(x, axis=0)": [120.0],
        "x": x.tolist(),
    }


@pytest.fixture
def rounds(run, tmp_path):
    file = tmp_path / "rounds.py"
    file.write_text(ROUNDS)
    return lambda *words: run(*(w for word in words for w in ("-c", word)), file)[1]


ROUNDS = """\
import torch
import triton
import triton.language as tl

@triton.jit
def first(x_ptr, y_ptr):
    i = tl.program_id(0) * 4 + tl.arange(0, 4)
    tl.store(y_ptr + i, tl.load(x_ptr + i) * 2)

@triton.jit
def second(y_ptr, z_ptr, n):
    acc = 0.0
    for k in range(n):
        for j in range(2):
            acc += tl.log(tl.load(y_ptr + k)) - j
    tl.store(z_ptr, acc)

@triton.jit
def inplace(z_ptr):
    tl.store(z_ptr, tl.load(z_ptr) + 1)

@triton.jit
def narrow(o_ptr, n):
    acc = tl.full((), 0.0, tl.bfloat16)
    exact = 0.0
    for k in range(n):
        acc = (acc + 1.0).to(tl.bfloat16)
        exact += 1.0
    tl.store(o_ptr, acc.to(tl.float32))
    tl.store(o_ptr + 1, exact)

@triton.jit
def append(x_ptr, rows, row):
    i = tl.arange(0, 4)
    tl.store(rows[0] + row * 4 + i, tl.load(x_ptr + row * 4 + i))

@triton.jit
def odd(rows, o_ptr, n):
    acc = 0.0
    for k in range(n):
        value = tl.load(rows[0] + k)
        if k % 2 == 1:
            acc += value
    tl.store(o_ptr, acc)

x, y, z = torch.tensor([1.0, 2, 3, 4, 5, -6, 7, 8]), torch.zeros(8), torch.zeros(1)
first[(2,)](x, y)
second[(1,)](y, z, 8)
inplace[(1,)](z)
inplace[(1,)](z)
narrow[(1,)](torch.zeros(2), 300)
rows = torch.zeros(12)
for row in range(3):
    append[(1,)](x, (rows, 1), row % 2)
odd[(1,)]((rows[4:], 1), torch.zeros(1), 4)
"""


def test_rounds_are_named_and_the_launch_that_wrote_an_element_is_gone_into(rounds):
    out = rounds("b end odd", "c", "why o[0]", "q")
    assert "acc = 2 in the last of 2 rounds (1, 3): -6, 2\n" in out
    # The last launch wrote the first row alone.
    assert "rows.0[3], one of 2 that were loaded, is from launch 7 of append at line" in out


def test_values_by_round_and_the_round_they_went_wrong_in(rounds):
    out = rounds("b end second", "c", "why z[0]", "q")
    assert "acc = nan in the last of 16 rounds: 0.693147" in out
    assert "; not finite from round 5.0 on" in out
    assert "k = 7 in the last of 8 rounds: 0, 1, 2, 3, 4, 5, 6, 7\n" in out


def test_round_from_which_on_a_sum_is_off_fp64_is_named(rounds):
    out = rounds("b end narrow", "c", "why o[0]", "why o[1]", "q")
    off, exact = out.split("(tkdebug) why o[1]")
    wanted = "acc = 256 in the last of 300 rounds: 1, 2, 3, 4, …, 256, 256, 256, 256; more than 1 %"
    assert f"{wanted} off fp64 from round 258 on, where it ends as 300\n" in off
    assert "exact = 300 in the last of 300 rounds: 1, 2, 3, 4, …, 297, 298, 299, 300\n" in exact


def test_why_goes_on_into_the_launches_that_wrote_what_was_loaded(rounds):
    out = rounds("b end inplace", "c", "c", "why z[0]", "why-nan z[0]", "q")
    why_, nan = out.split("(tkdebug) why-nan")
    assert "loads z_ptr[0] = nan\n         stored by launch 3 of inplace at line 20\n" in why_
    assert "z_ptr[0] is from launch 3 of inplace at line 20: z_ptr[0] is nan: written" in why_
    assert "z_ptr[0] is from launch 2 of second at line 16: z_ptr[0] is nan: written" in why_
    assert "y_ptr[7], one of 8 that were loaded, is from launch 1 of first at line 8" in why_
    assert "NaN is born here: log of tl.load(y_ptr + k) = -12" in nan


def test_writers_of_tensors_in_tuples_and_descriptors_are_known():
    x = torch.zeros(8)
    writers = Writers()
    writers.note([x], 1, "first", 1, 0)
    described = TensorDescriptor(x, [8], [1], [4])
    for argument in (x, (2, x), described):
        (writer,) = writers.of([argument]).values()
        assert writer.kernel == "first"


def test_a_launch_that_cannot_be_interpreted_again_is_named_with_a_command(rounds, monkeypatch):
    monkeypatch.setattr("tkdebug.causes.launches._SMALL_BYTES", 0)
    out = rounds("b end inplace", "c", "c", "why z[0]", "q")
    assert (
        "z_ptr: launch 3 of inplace has written it; it is not interpreted again, as what it was "
        "given has changed since; TKDEBUG_CAUSE=1 keeps that: "
        "tkdebug debug -c 'b end inplace' -c c -c 'why z_ptr[0]' "
    ) in out
