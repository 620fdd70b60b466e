"""Known differences between what Triton 3.9 and tkdebug compile, each with its reason.

`ask_triton.py` beside it finds others. docs/triton_versions.md tells users.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Difference:
    """A kind of difference.

    Attributes:
        verdict: what Triton makes of the kernel; the other does not.
        pattern: what the refusing compiler's error matches.
        reason: why both stay as they are.
    """

    verdict: Literal["takes", "refuses"]
    pattern: str
    reason: str


def _refuses(pattern: str, reason: str) -> Difference:
    return Difference("refuses", pattern, reason)


def _takes(pattern: str, reason: str) -> Difference:
    return Difference("takes", pattern, reason)


DIFFERENCES: tuple[Difference, ...] = (
    _refuses(
        r"Block pointers have been removed|'triton.language' has no attribute 'advance'",
        "3.9 has no block pointers; tkdebug keeps them",
    ),
    _refuses(
        r"^AssertionError\(['\"](Loop carried variable \w+ changed type.*constexpr|"
        r"initial value for `\w+` is of type constexpr)",
        "a constant that run-time control flow re-binds is noted, and run",
    ),
    _refuses(r"Simultaneous multiple assignment is not supported", "`a = b = x` is run"),
    _refuses(
        r"Tensor descriptor strides must be 16-byte aligned",
        "a constant stride that TMA does not take is `misaligned-descriptor` at the launch",
    ),
    _refuses(
        r"'(llvm|arith)\.[\w.]+' op (operand|result) #0 must be floating[ -]point.*i8|"
        r"cannot cast int1\[.*\] to <.*fp8",
        "arithmetic of fp8 tiles is run",
    ),
    _refuses(
        r"^LLVM ERROR: Unsupported (rounding mode for )?conversion",
        "conversions between fp8 and fp64 are run",
    ),
    _refuses(
        r"'constexpr' object has no attribute 'to_ir'",
        "a constexpr variable as dtype of inline_asm_elementwise is taken",
    ),
    _refuses(
        r"'constexpr_type' object has no attribute 'scalar'",
        "numbers are arguments of map_elementwise",
    ),
    _refuses(r"^pack size must be a divisor", "any `pack` of map_elementwise is run"),
    _refuses(r"'\.tile::gather4 .* requires \.target sm_100", "rows are gathered on sm_90, too"),
    _refuses(r"libdevice' has no attribute 'fast_tanhf'", "a function of Triton before 3.9 stays"),
    _refuses(
        r"^Assertion `isIntOrFloat\(\)",
        "reductions of pointers: refused when they are interpreted, not when they are compiled",
    ),
    _refuses(
        r"^Assertion `isa<BlockArgument>\(accumOperand\)' failed",
        "a pass of Triton 3.9 fails on minima that a loop carries",
    ),
    _refuses(r"FileNotFoundError: .* 'a\.bc'", "a library that a test names and does not have"),
    _takes(r"option ir_override is not supported under interpret", "a limit of interpretation"),
    _takes(
        r"is older than the GPUs that this version", "the test compiles for sm_70, Triton for sm_90"
    ),
)
