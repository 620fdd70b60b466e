"""Loops found in machine code by its branches."""

from __future__ import annotations

from tkdebug.linemap.code_flow import CodeLoop, nest_of
from tkdebug.linemap.line_table import Instruction


def code(*texts: str) -> list[Instruction]:
    """Instructions; `@3` at the end of a text is the index that it jumps to."""
    found = []
    for at, text in enumerate(texts):
        plain, _, target = text.partition(" @")
        address = int(target) * 16 if target else None
        found.append(Instruction(at * 16, plain, None, None, (), target=address))
    return found


def shape(nest: object) -> object:
    """Indices, with a list for each loop."""
    assert isinstance(nest, tuple)
    return [shape(item.body) if isinstance(item, CodeLoop) else item for item in nest]


def test_code_without_branches_is_a_line() -> None:
    assert shape(nest_of(code("MOV", "FADD", "EXIT"))) == [0, 1, 2]
    assert nest_of([]) == ()


def test_a_branch_back_makes_a_loop() -> None:
    assert shape(nest_of(code("MOV", "FADD", "@P0 BRA `(L) @1", "EXIT"))) == [0, [1, 2], 3]


def test_loops_are_in_loops() -> None:
    nest = nest_of(code("MOV", "FADD", "FMUL", "@P0 BRA `(A) @2", "@P1 BRA `(B) @1", "EXIT"))
    assert shape(nest) == [0, [1, [2, 3], 4], 5]


def test_a_branch_past_instructions_is_no_loop() -> None:
    nest = nest_of(code("@P0 BRA `(L) @2", "FADD", "EXIT"))
    assert sorted(shape(nest)) == [0, 1, 2]


def test_cold_code_after_the_end_that_jumps_back_is_no_loop() -> None:
    # ptxas puts what seldom runs after EXIT.
    nest = nest_of(code("@P0 BRA `(COLD) @3", "FADD", "EXIT", "FMUL", "BRA `(BACK) @1"))
    assert sorted(shape(nest)) == [0, 1, 2, 3, 4]


def test_what_cannot_be_reached_is_left_out() -> None:
    assert shape(nest_of(code("EXIT", "FADD", "RET"))) == [0]
    # A function in the kernel's code has a nest of its own.
    assert shape(nest_of(code("EXIT", "FADD", "RET"), 1)) == [1, 2]


def test_a_choice_is_a_predicate_before_the_name_or_an_operand() -> None:
    nest = nest_of(code("MOV", "BRA.U UP0, `(L) @0", "EXIT"))
    assert shape(nest) == [[0, 1], 2]
    assert shape(nest_of(code("MOV", "BRA `(L) @0", "EXIT"))) == [[0, 1]]
