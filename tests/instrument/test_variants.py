"""Differences between specialisations of one kernel."""

from __future__ import annotations

from tkdebug.instrument.analyses.kernel_names import differing_parts
from tkdebug.instrument.records import RecordedKernel


def kernel(hash_: str, signature: str, name: str = "k", **options: object) -> RecordedKernel:
    return RecordedKernel(
        seq=1,
        hash=hash_,
        process=1,
        rank=0,
        name=name,
        file="k.py",
        line=1,
        source="",
        signature=signature,
        options=options,
        compile_ns=0,
        cache_hit=False,
        stages=(),
    )


def test_only_what_differs_is_named():
    parts = differing_parts(
        [
            kernel("a", "(x: *fp32, N: i32, ACT: constexpr = '', B: constexpr = 64)", num_warps=4),
            kernel("b", "(x: *fp32, N: i32, ACT: constexpr = 'a, b', B: constexpr = 64)"),
            kernel("c", "(x: *fp16, N: i32, ACT: constexpr = '', B: constexpr = 64)", num_warps=4),
        ]
    )
    assert parts == {
        "a": "x: *fp32, ACT='', num_warps=4",
        "b": "x: *fp32, ACT='a, b'",
        "c": "x: *fp16, ACT='', num_warps=4",
    }


def test_kernels_of_other_names_and_architectures_are_not_compared():
    parts = differing_parts(
        [
            kernel("a", "(x: *fp32)"),
            kernel("b", "(x: *fp32)", arch="sm_90a"),
            kernel("c", "(y: i32)", name="other"),
        ]
    )
    assert parts == {"a": "", "b": "", "c": ""}


def test_values_with_brackets_stay_whole():
    parts = differing_parts(
        [kernel("a", "(s: constexpr = (1, 2), n: i32)"), kernel("b", "(s: constexpr = [3, 4], n)")]
    )
    assert parts == {"a": "s=(1, 2), n: i32", "b": "s=[3, 4], n"}
