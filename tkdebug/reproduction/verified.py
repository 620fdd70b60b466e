"""The failing case of an answer of `tkdebug verify`, as a script that has its fault."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from tkdebug.errors import UsageError
from tkdebug.process.named_files import read_text
from tkdebug.records.events import Fault
from tkdebug.verification.records import Answer, Finding, Request

_MOST_BYTES = 16 << 20
CASE_NAME = "<case of verify>"


def failed_finding(file: Path) -> tuple[Answer, Finding]:
    """Return an answer, and the first of its findings that has a case.

    Raises:
        UsageError: it is no answer, or has no such finding.
    """
    try:
        answer = Answer.of_json(json.loads(read_text(file, _MOST_BYTES)))
    except (OSError, ValueError, TypeError, KeyError, UsageError) as error:
        raise UsageError(
            f"{file}: got no answer of `tkdebug verify --format json` ({error}); "
            "give one, a script or a recorded run"
        ) from None
    found = next((one for one in answer.findings if one.is_wrong and one.case is not None), None)
    if found is None:
        raise UsageError(f"{file}: the verdict is {answer.verdict}: there is no failing case")
    return answer, found


def case_code(file: Path) -> str:
    """Return a script that calls the kernel on the failing case, and compares."""
    name = str(file.absolute())
    return f"from tkdebug.reproduction.verified import run_case\nrun_case({name!r})\n"


def is_of(finding: Finding, fault: Fault) -> bool:
    """Whether a fault is what a finding is about."""
    kind = "mismatch" if finding.kind == "wrong-value" else finding.kind
    return fault.kind == kind


def run_case(name: str) -> None:
    """Call the kernel of an answer on its failing case, and compare with the reference.

    Raises:
        AssertionError: they differ.
    """
    import torch

    from tkdebug.verification.inputs import dense_values, placed
    from tkdebug.verification.oracle import tensors_in
    from tkdebug.verification.problem import load

    answer, finding = failed_finding(Path(name))
    case = finding.case
    assert case is not None
    words = shlex.split(answer.replay)
    inputs = words[words.index("--inputs") + 1] if "--inputs" in words[:-1] else ""
    function = "" if answer.function == "ModelNew" else answer.function
    problem = load(Request(answer.file, function, answer.reference, inputs, answer.seed))
    dense = dense_values(problem.example, case)
    given = problem.example.filled(placed(dense, case, problem.device), case.numbers)
    same = problem.example.filled([tensor.clone() for tensor in dense], case.numbers)
    expected = problem.call_reference(same, case, False, None)
    result = problem.call(given, case)
    for (_, got), (_, want) in zip(tensors_in(result), tensors_in(expected), strict=False):
        torch.testing.assert_close(got, want.to(got.dtype).to(got.device), equal_nan=True)
