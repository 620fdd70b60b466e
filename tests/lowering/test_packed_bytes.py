"""Bytes of words put together as other words: what the selectors of `prmt` pick."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tkdebug.compiler.targets.nvptx.emitter import LLVMValue
from tkdebug.compiler.targets.nvptx.lowering.shared_memory.access import (
    WORD_BYTES,
    packed_words,
)

WORDS = [LLVMValue("i32", f"%w{i}") for i in range(4)]
BYTES = st.tuples(st.sampled_from(WORDS), st.integers(0, WORD_BYTES - 1))


class Permutes:
    """Stands in for the emitter; knows which byte of which word each byte of a value is."""

    def __init__(self) -> None:
        self.bytes_of = {w.text: [(w, place) for place in range(WORD_BYTES)] for w in WORDS}

    def asm(self, text: str, constraints: str, type_: str, arguments: Any, **_: Any) -> LLVMValue:
        found = re.fullmatch(r"prmt\.b32 \$0, \$1, \$2, 0x([0-7]{4});", text)
        assert found is not None, f"not a selector of four bytes: {text}"
        assert (constraints, type_) == ("=r,r,r", "i32")
        given = [byte for argument in arguments for byte in self.bytes_of[argument.text]]
        # The lowest byte is picked by the last digit.
        result = LLVMValue("i32", f"%p{len(self.bytes_of)}")
        self.bytes_of[result.text] = [given[int(digit)] for digit in reversed(found[1])]
        return result


@given(st.lists(BYTES, min_size=4, max_size=8).filter(lambda sources: len(sources) % 4 == 0))
def test_words_hold_the_bytes_they_are_packed_of(sources: list[tuple[LLVMValue, int]]) -> None:
    emit = Permutes()
    values = [LLVMValue("i8", f"%b{i}") for i in range(len(sources))]
    known = {value.text: source for value, source in zip(values, sources, strict=True)}
    ctx: Any = SimpleNamespace(emit=emit, words_of_bytes=known)
    packed = packed_words(ctx, values)
    assert packed is not None
    assert [byte for word in packed for byte in emit.bytes_of[word.text]] == sources


def test_bytes_of_unknown_words_are_not_packed() -> None:
    values = [LLVMValue("i8", f"%b{i}") for i in range(4)]
    known = {value.text: (WORDS[0], i) for i, value in enumerate(values[:3])}
    ctx: Any = SimpleNamespace(emit=Permutes(), words_of_bytes=known)
    assert packed_words(ctx, values) is None
    assert packed_words(ctx, values[:3]) is None
