"""The edits of a kernel's source: which there are, and that they are what they seem."""

import ast

import pytest

from tkdebug.causes.kernel_text import Kind
from tkdebug.causes.search import edits_of
from tkdebug.compiler.frontend.source import KernelSource

FLOAT, INT, POINTER = Kind("float", (32,)), Kind("int"), Kind("pointer")
KINDS = {
    **{"x_ptr": POINTER, "o_ptr": POINTER, "n": INT, "sm": INT, "sn": INT},
    **{"i": Kind("int", (32,)), "x": FLOAT, "m": FLOAT, "unused": FLOAT},
}


def source(*body):
    lines = ["def k(x_ptr, o_ptr, n, sm, sn, BLOCK: tl.constexpr):", *(f"    {b}" for b in body)]
    text = "\n".join(lines)
    definition = ast.parse(text).body[0]
    return KernelSource("k", "k.py", 1, text, definition, tuple(lines))


def results(*body, line=None):
    given = source(*body)
    found = {}
    for edit in edits_of(given, {}, KINDS, line):
        before, after = edit.diff(given)
        found.setdefault((" / ".join(before), " / ".join(after)), edit)
    return found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x = tl.exp2(x)", "x = tl.exp(x)"),
        ("x = tl.max(x, axis=0)", "x = tl.max(x, axis=1)"),
        ("x = tl.max(x, axis=0)", "x = tl.sum(x, axis=0)"),
        ("m = i < n", "m = i <= n"),
        ("x = x[:, None] * m", "x = x[None, :] * m"),
        ("x = x - m", "x = m - x"),
        ("x = x / (m * 2)", "x = x / (tl.sqrt(m * 2))"),
        ("i = i * sm + sn", "i = i * sn + sm"),
        ("x = tl.load(x_ptr + i)", "x = tl.load(o_ptr + i)"),
        ("x = tl.load(x_ptr + i)", "x = tl.load(x_ptr + i * sm)"),
        ("x = tl.load(x_ptr + i)", "x = tl.load(x_ptr + sn + i)"),
        ("x = tl.load(x_ptr + i, mask=m)", "x = tl.load(x_ptr + i, mask=m, other=0.0)"),
        ("x = tl.dot(x, m)", "x = tl.dot(m, x)"),
        ("i = tl.program_id(axis=0)", "i = tl.program_id(axis=1)"),
        ("x += m", "x = m"),
        ("x = x * m", "x = (x * m) + unused"),
        ("x = tl.zeros((4,), dtype=tl.float16)", "x = tl.zeros((4,), dtype=tl.float32)"),
        ("o_ptr = tl.advance(o_ptr, (0, n))", "o_ptr = tl.advance(o_ptr, (n, 0))"),
        ("m = (i < n) + tl.histogram(i, 4)", "m = (i < n) + tl.histogram(i, 4, mask=i < n)"),
        ("i = (i - n) % sm", "i = (i - n + sm) % sm"),
        ("i = (i - n) % sm", "i = (i - n) // sm"),
        ("i = i % sm", "i = i // (n // sm)"),
        ("x = tl.where(i >= n, x, m)", "x = tl.where(i + sm - sn >= n, x, m)"),
        ("x = tl.associative_scan(x, 0, f)", "x = tl.associative_scan(x, 0, f, reverse=True)"),
        (
            "x = tl.load(x_ptr + i) + tl.load(o_ptr + n + i)",
            "x = tl.load(x_ptr + n + i) + tl.load(o_ptr + n + i)",
        ),
        ("sn = tl.where(x > m, sn, sm)", "sn = tl.where(x > m, sn + n, sm)"),
        ("i = tl.load(x_ptr, mask=m, other=1)", "i = tl.load(x_ptr, mask=m, other=-2147483648)"),
    ],
)
def test_a_mistake_has_its_edit(old, new):
    given = source("i = n", "m = unused = x", old)
    diffs = [edit.plain(given).diff(given) for edit in edits_of(given, {}, KINDS)]
    assert ((old,), (new,)) in diffs


def test_an_edit_changes_its_line_and_no_other():
    given = source("x = x + 1", "# a comment, with ünïcode", "x = x * m")
    for edit in edits_of(given, {}, KINDS):
        lines = edit.lines(given)
        assert lines[2] == given.lines[2] or len(lines) != len(given.lines)
        assert lines != list(given.lines)


@pytest.mark.parametrize(
    ("body", "new"),
    [
        (("tl.store(o_ptr + i, x)",), "tl.atomic_add(o_ptr + i, x)"),
        (("tl.store(o_ptr + i, tl.load(o_ptr + i) + x)",), "tl.atomic_add(o_ptr + i, x)"),
        (
            ("x = tl.load(o_ptr + i)", "tl.store(o_ptr + i, tl.maximum(m, x))"),
            "tl.atomic_max(o_ptr + i, m)",
        ),
        (
            ("x = tl.load(o_ptr + i)", "x += m * 2", "tl.store(o_ptr + i, x)"),
            "tl.atomic_add(o_ptr + i, m * 2)",
        ),
        (("x = tl.load(o_ptr + i)", "tl.store(o_ptr + i, x * m)"), None),
        (("x = tl.load(o_ptr + i)", "m = x - m", "tl.store(o_ptr + i, m)"), None),
    ],
)
def test_an_atomic_combines_what_a_store_adds_to_its_own_memory(body, new):
    """An atomic of the sum itself would count what is in memory twice."""
    atomics = {after for _, after in results(*body) if after.startswith("tl.atomic_")}
    assert new in atomics if new else not atomics


def test_an_index_that_may_be_negative_gets_a_mask_from_zero_on():
    load = "x = tl.load(x_ptr + i, mask={})"
    shifted, given = "i = tl.arange(0, BLOCK) - 1", load.format("i < n")
    assert (given, load.format("(i < n) & (i >= 0)")) in results(shifted, given)
    assert not any("i >= 0" in after for _, after in results("i = tl.arange(0, BLOCK)", given))


def test_a_division_that_rounds_up_comes_before_a_remainder():
    """Both may give enough tiles."""
    found = results("n = n // BLOCK")
    up, rest = (found["n = n // BLOCK", f"n = {new}"] for new in ("tl.cdiv(n, BLOCK)", "n % BLOCK"))
    assert up.order < rest.order


def test_a_scalar_beside_a_tile_gets_a_tile_as_its_factor():
    kinds = {**KINDS, "carry": Kind("float")}
    given = source("carry = 0.0", "m = unused = x", "x = m + carry")
    after = {edit.plain(given).diff(given)[1] for edit in edits_of(given, {}, kinds)}
    assert ("x = m + carry * unused",) in after


def test_statements_that_do_not_lead_to_a_store_are_left_alone():
    body = ("x = tl.load(x_ptr + i)", "m = tl.load(o_ptr + i)", "tl.store(o_ptr + i, x)")
    changed = {edit.line for edit in edits_of(source(*body), {}, KINDS, line=4)}
    assert changed == {2, 4}


def test_smaller_edits_come_first():
    orders = [edit.order for edit in edits_of(source("x = x * m + 2"), {}, KINDS)]
    assert orders == sorted(orders)


def test_state_that_a_loop_never_renews_gets_an_assignment():
    found = results("m = x", "for k in range(0, n):", "    x = x * m")
    assert ("", "m = x") in found


def test_a_state_that_is_not_rescaled_gets_the_factor_of_its_sum():
    body = ("for k in range(0, n):", "    m = tl.exp(x)", "    x = x + m", "    unused = m")
    given = source("x = m = unused = tl.load(x_ptr)", *body)
    afters = [e.plain(given).diff(given)[1] for e in edits_of(given, {}, KINDS)]
    assert ("x = x * tl.exp(unused - m) + m",) in afters


def test_the_bound_of_an_index_is_put_back_into_a_mask():
    found = results("m = i < n", "x = tl.load(x_ptr + i, mask=m)", "x = tl.load(o_ptr + i)")
    assert ("x = tl.load(o_ptr + i)", "x = tl.load(o_ptr + i, mask=m)") in found


def test_rules_of_few_edits_come_before_the_many_of_others():
    edits = edits_of(source("x = tl.max(x, axis=0) * m + unused * x", "i = i + sm * sn"), {}, KINDS)
    rules = [edit.rule for edit in edits]
    assert rules.index("axis") < 20
    assert len(rules) > 100


def test_a_name_that_nothing_reads_comes_before_one_that_is_read():
    given = source("m = unused = x", "x = m * m / x")
    orders = {e.diff(given)[1]: e.order for e in edits_of(given, {}, KINDS)}
    assert orders[("x = unused * m / x",)] < orders[("x = x * m / x",)]


def test_the_taps_of_a_loop_are_turned_around():
    body = ("for k in range(sm):", "    x += tl.load(x_ptr + k)")
    assert ("x += tl.load(x_ptr + k)", "x += tl.load(x_ptr + (sm - 1 - k))") in results(*body)


def test_a_loop_that_ends_early_gets_a_round_more():
    found = results("for k in range(0, n - BLOCK, BLOCK):", "    x = x * m")
    new = "for k in range(0, (n - BLOCK) + BLOCK, BLOCK):"
    assert ("for k in range(0, n - BLOCK, BLOCK):", new) in found
