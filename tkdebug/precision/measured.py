"""Records of what was measured: errors by line and cause, their shares of outputs' errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tkdebug.precision.error_causes import Cause


@dataclass(frozen=True, slots=True)
class Share:
    """The part of an output's error that a line explains, by one cause.

    Attributes:
        share: the part of the whole error, to first order; the shares of an output add up to about
            1. A negative share compensates other ones.
        without: the relative error that the output would have without these errors.
    """

    file: str
    line: int
    cause: Cause
    share: float
    without: float


Verdict = Literal["agrees", "precision", "formula"]


@dataclass(frozen=True, slots=True)
class AgainstReference:
    """The comparison of an output with a reference.

    Attributes:
        verdict: `agrees`; `precision`, where fp64 does and the kernel does not; `formula`, where
            fp64 does not either.
        error: the kernel's relative error.
        error_in_fp64: the relative error of the kernel in fp64.
    """

    verdict: Verdict
    error: float
    error_in_fp64: float


@dataclass(frozen=True, slots=True)
class Output:
    """A tensor that a launch wrote.

    Attributes:
        name: the name of the parameter.
        elements: the number of elements that were looked at.
        error: the root mean square of their relative errors.
        largest: the largest difference from fp64.
        not_finite: the number of elements that are infinite or NaN, while fp64 has numbers.
        shares: the largest first.
        explained: the sum of all shares, `rest` among them.
        rest: the share of errors that are far smaller than others.
        reference: the comparison with a reference; None without one.
    """

    name: str
    elements: int
    error: float
    largest: float
    not_finite: int
    shares: tuple[Share, ...]
    explained: float
    rest: float
    reference: AgainstReference | None = None


@dataclass(frozen=True, slots=True)
class LineErrors:
    """A line of a kernel's source.

    Attributes:
        text: the line itself.
        local: the root mean square of the relative errors that its ops make; 0 if none computes
            floats.
        carried: the same of the errors that their operands bring, for the op where it is largest.
        amplified: the largest factor by which a sum of it lets relative errors grow.
        exponents: of the smallest and the largest number of its results that is not 0; None if
            there is none.
    """

    file: str
    line: int
    text: str
    local: float
    carried: float
    amplified: float
    exponents: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Finding:
    """A line that an output's error comes from.

    Attributes:
        as_fp32: the measured error of the output if the line computes in fp32; None if it does
            already, or that was not measured.
    """

    output: str
    file: str
    line: int
    cause: Cause
    share: float
    detail: str
    as_fp32: float | None = None


@dataclass(frozen=True, slots=True)
class KernelNumerics:
    """A launch in fp64 beside itself.

    Attributes:
        programs: how many were looked at, of `total`.
        findings: the most important first.
        notes: what was left out, and why.
        seconds: the seconds of processor time that it took.
    """

    kernel: str
    launch: int
    grid: tuple[int, int, int]
    programs: int
    total: int
    outputs: tuple[Output, ...]
    lines: tuple[LineErrors, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    seconds: float
