"""Records of a verification: cases, findings, what was covered, and the answer.

Invariant: a case is all that is needed, with the problem, to make its inputs again.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args

from tkdebug.errors import UsageError

SCHEMA = 1
USUAL_CASES = 600
# As `--shard` takes them, up to 999/999.
_MOST_SHARD_CHARS = 7
# Fields that are equal in all shards of a verification.
_SAME = ("file", "function", "reference", "seed")
Verdict = Literal["right", "wrong", "undecided"]
# Findings that a result is not the kernel's, or not what it seems.
TRICKS: Mapping[str, str] = {
    "no-kernel": "no Triton kernel was launched, so that nothing was verified",
    "torch-fallback": "torch computes the result; the kernel adds nothing to it",
    "kernel-unused": "the result is the same where the kernels' outputs are other numbers",
    "cached-result": "a result of an earlier call is given again for other values",
    "shared-result": "a later call changes the result of an earlier one",
    "input-changed": "an input is changed that the reference leaves as it is",
    "patched": "functions that measure, compare or give the expected result were replaced",
    "other-thread": "kernels or other work run in a thread that the call does not wait for",
    "other-process": "a call starts a process, whose work is not the kernel's",
    "other-stream": "kernels run on a stream for which the caller's does not wait",
    "lazy-result": "the result is no plain tensor: it may be computed when it is looked at",
    "precision-lowered": "the error is that of arithmetic in a narrower type",
    "constant-result": "the result does not depend on the values of the inputs",
}
# Found by comparing the bits of several calls.
KINDS_OF_BITS = ("not-deterministic", "not-batch-invariant")
# Other kinds that findings have, beside kinds of faults.
KINDS: Mapping[str, str] = {
    **TRICKS,
    "wrong-value": "elements differ from the reference by more than arithmetic explains",
    "wrong-shape": "the result has another structure, shape or kind of numbers",
    "refuses-example": "the kernel refuses the inputs that the problem gives",
    "raises": "the kernel raises an exception that is no check of its arguments",
    "import-error": "the kernel's file cannot be imported",
    "not-deterministic": "the same call gives other bits",
    "not-batch-invariant": "a row has other bits in a batch of another size",
    "no-end": "a call did not end within the budget",
    "tf32": "products of fp32 are rounded to tf32, the default of `tl.dot`; in fp32 they are right",
    "torch-part": "torch computes a part of the result, as the reference does",
    "dtype": "the result has another dtype than the reference's",
    "looks-at-callers": "a call looks at the functions that called it",
    "stale-parameters": "parameters of a module that change between calls are not seen",
    "nan-of-reference": "the reference makes a NaN of finite inputs, and the kernel a number",
    "stale-buffers": "buffers of the module are other than the reference's after a call",
    "other-inputs": "the result is wrong for inputs that the kernel may not mean to take",
    "not-run": "a branch of the candidate's source ran in no call that was compared",
    "grid-limit": "for large inputs that it takes the grid has more programs than a GPU has",
    "other-of-ties": "of equal values it gives another index than the first",
    "eval-mode": "after `eval()` of its module the result is wrong",
    "other-constructor": "the result is wrong for other arguments of the constructor",
    "aliased-result": "the result is memory of an input, where the reference's is its own",
}


@dataclass(frozen=True, slots=True)
class Request:
    """A kernel that is to be verified, and how.

    Attributes:
        file: the kernel's file.
        function: the kernel's name in it; "" for `ModelNew`.
        reference: module:function, or module:class.
        inputs: module:function that gives the example's arguments; "" to look for `get_inputs`.
        seed: the seed of the search.
        seconds: the processor time for all.
        cases: the number of cases that are tried at most, without those for tricks.
        shard: this part's number from 1 on, and how many there are.
        case: the only one to run, as text; "" for a search.
        is_deterministic: whether each bit must be the same in another call.
        is_batch_invariant: whether rows must have the same bits in other batches.
        mode: how kernels run: "interpret" or "native".
    """

    file: str
    function: str = ""
    reference: str = ""
    inputs: str = ""
    seed: int = 0
    seconds: float = 30.0
    cases: int = USUAL_CASES
    shard: tuple[int, int] = (1, 1)
    case: str = ""
    is_deterministic: bool = False
    is_batch_invariant: bool = False
    mode: str = "interpret"


@dataclass(frozen=True, slots=True)
class Case:
    """The recipe of one call's inputs.

    Attributes:
        name: the case in words.
        shapes: the shape of each tensor among the inputs.
        numbers: the value of each number among them.
        dtypes: the dtype of each tensor.
        layouts: the layout of each tensor: "contiguous", or a name of `inputs.LAYOUTS`.
        values: the kind of values, as `inputs.values_of` takes it; "given" for the example's.
        weights: "given", or "random" for other parameters of a module.
        way: how kernels run: "checked", a name of `launches.WAYS`, "config N" or "tuned".
        seed: the seed of the random numbers.
        most: the largest integer that is drawn; -1 for that of the example.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...] = ()
    numbers: tuple[Any, ...] = ()
    dtypes: tuple[str, ...] = ()
    layouts: tuple[str, ...] = ()
    values: str = "given"
    weights: str = "given"
    way: str = "checked"
    seed: int = 0
    most: int = -1

    def as_json(self) -> dict[str, object]:
        """Return the case as a JSON object."""
        return asdict(self)

    def as_text(self) -> str:
        """Return the case as the text that `--case` takes."""
        return json.dumps(self.as_json(), separators=(",", ":"))

    def renamed(self, name: str, **changes: Any) -> Case:
        """Return the case with another name and other fields."""
        return replace(self, name=name, **changes)

    @staticmethod
    def of_text(text: str) -> Case:
        """Return the case that `as_text` wrote.

        Raises:
            UsageError: the text is no case.
        """
        try:
            data = json.loads(text)
            if not isinstance(data, dict) or not {f.name for f in fields(Case)} >= data.keys():
                raise ValueError("unknown keys")
            _check(data, **{name: _CASE[name] for name in data})
            for shape in data.get("shapes", ()):
                if not isinstance(shape, list) or any(type(size) is not int for size in shape):
                    raise TypeError(f"shapes: got {shape!r:.60}, expected lists of integers")
            for key in ("shapes", "numbers", "dtypes", "layouts"):
                data[key] = tuple(
                    tuple(one) if isinstance(one, list) else one for one in data.get(key, ())
                )
            return Case(**data)
        except (ValueError, TypeError) as error:
            raise UsageError(
                f"--case: got {text[:60]!r}, expected the `case` of an answer as JSON ({error})"
            ) from None


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason against a kernel, or a remark on it.

    Attributes:
        kind: a name of `KINDS`, or a kind of fault.
        message: the finding in words.
        is_wrong: whether the kernel is wrong by it.
        case: the smallest case that shows it; None if none does.
        file, line: the place; None if it is not known.
        kernel: the kernel's name; "" for none.
        fault: the fault as a report has it, with its cause; None for none.
    """

    kind: str
    message: str
    is_wrong: bool = True
    case: Case | None = None
    file: str | None = None
    line: int | None = None
    kernel: str = ""
    fault: Mapping[str, Any] | None = None


@dataclass
class Covered:
    """Counts of all that a verification examined.

    Attributes:
        cases: calls whose results were compared.
        refused: inputs that the kernel refused.
        no_inputs: inputs that the reference refused.
        elements: the number of elements that were compared.
        launches: the number of launches of kernels.
        kernels: the kernels' names.
        ways: how kernels ran, with the number of cases.
        values, layouts, dtypes: the kinds that were tried, with the number of cases.
        left: cases that were planned, for which there was no time.
        notes: what was left out, and why.
    """

    cases: int = 0
    refused: int = 0
    no_inputs: int = 0
    elements: int = 0
    launches: int = 0
    kernels: list[str] = field(default_factory=list)
    ways: dict[str, int] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)
    layouts: dict[str, int] = field(default_factory=dict)
    dtypes: dict[str, int] = field(default_factory=dict)
    left: int = 0
    notes: list[str] = field(default_factory=list)

    def add(self, other: Covered) -> None:
        """Add the counts and notes of another shard or mode."""
        for one in fields(Covered):
            mine, theirs = getattr(self, one.name), getattr(other, one.name)
            if isinstance(mine, int):
                setattr(self, one.name, mine + theirs)
            elif isinstance(mine, list):
                mine += [text for text in theirs if text not in mine]
            else:
                for key, count in theirs.items():
                    mine[key] = mine.get(key, 0) + count


@dataclass
class Answer:
    """The answer to one verification.

    Attributes:
        file: the kernel's file, as it was given.
        function: the kernel's name in it.
        reference: the reference, as it was given.
        seed: the seed of the search.
        shard: which part of the cases was tried, "1/1" for all.
        why: why it is undecided; "" otherwise.
        tolerance: how large errors may be, in words.
        seconds: the processor time that it took.
    """

    file: str
    function: str
    reference: str
    seed: int
    shard: str = "1/1"
    verdict: Verdict = "undecided"
    why: str = ""
    findings: list[Finding] = field(default_factory=list)
    covered: Covered = field(default_factory=Covered)
    tolerance: str = ""
    modes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    replay: str = ""

    @staticmethod
    def new(request: Request) -> Answer:
        """Return the undecided answer to a request, without findings."""
        number, count = request.shard
        function = request.function or "ModelNew"
        return Answer(request.file, function, request.reference, request.seed, f"{number}/{count}")

    @property
    def case(self) -> Case | None:
        """The case of the first finding that makes the kernel wrong and has one, or None."""
        return next((f.case for f in self.findings if f.is_wrong and f.case is not None), None)

    def judge(self) -> None:
        """Set the verdict: wrong by a finding, else undecided for the reason `why`, else right.

        Without a launch, or without an element that could be compared, it is undecided, too.
        """
        self.findings.sort(key=lambda finding: not finding.is_wrong)
        if any(finding.is_wrong for finding in self.findings):
            self.verdict, self.why = "wrong", ""
        elif self.why:
            self.verdict = "undecided"
        elif not self.covered.launches:
            self.verdict, self.why = "undecided", TRICKS["no-kernel"]
        elif not self.covered.elements:
            self.verdict, self.why = "undecided", "no element of a result could be compared"
        else:
            self.verdict = "right"

    def as_json(self) -> dict[str, object]:
        """Return the answer as a JSON object of schema 1."""
        data: dict[str, object] = {"schema": SCHEMA, **asdict(self)}
        data["case"] = None if self.case is None else self.case.as_json()
        return data

    @staticmethod
    def of_json(data: Mapping[str, Any]) -> Answer:
        """Return the answer of an object that `as_json` made.

        Raises:
            ValueError: the schema, the verdict or the shard is unknown.
            TypeError: a value has another type.
            KeyError: a field is missing.
            UsageError: the case of a finding is no case.
        """
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']}, expected {SCHEMA}")
        given = {key: data[key] for key in (f.name for f in fields(Answer))}
        _check(given, **_ANSWER)
        _part_of(given["shard"])
        if given["verdict"] not in get_args(Verdict):
            raise ValueError(f"verdict {given['verdict']!r:.60}")
        given["findings"] = [_finding(one) for one in given["findings"]]
        covered = Covered(**given["covered"])
        _check(asdict(covered), **{key: type(value) for key, value in asdict(Covered()).items()})
        for counts in (covered.ways, covered.values, covered.layouts, covered.dtypes):
            _check(counts, **dict.fromkeys(counts, int))
        given["covered"] = covered
        return Answer(**given)


_ABSENT = type(None)
_JSON_NAMES: Mapping[type, str] = {
    str: "a text",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    list: "a list",
    tuple: "a list",
    dict: "an object",
    _ABSENT: "null",
}
_CASE: Mapping[str, Any] = {
    **dict.fromkeys(("name", "values", "weights", "way"), str),
    **dict.fromkeys(("seed", "most"), int),
    **dict.fromkeys(("shapes", "numbers", "dtypes", "layouts"), list),
}
_ANSWER: Mapping[str, Any] = {
    **dict.fromkeys(
        ("file", "function", "reference", "shard", "verdict", "why", "tolerance", "replay"), str
    ),
    **dict.fromkeys(("findings", "modes"), list),
    "seed": int,
    "covered": dict,
    "seconds": (int, float),
}
_FINDING: Mapping[str, Any] = {
    **dict.fromkeys(("kind", "message", "kernel"), str),
    "is_wrong": bool,
    "case": (dict, _ABSENT),
    "file": (str, _ABSENT),
    "line": (int, _ABSENT),
    "fault": (dict, _ABSENT),
}


def _check(data: Mapping[str, Any], **kinds: Any) -> None:
    """Check the types of values that were read.

    Raises:
        TypeError: a value has another type than `kinds` says.
    """
    for name, kind in kinds.items():
        value = data[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            names = [_JSON_NAMES[one] for one in (kind if isinstance(kind, tuple) else (kind,))]
            raise TypeError(f"{name}: got {value!r:.60}, expected {' or '.join(names)}")


def _part_of(shard: str) -> tuple[int, int]:
    """Return the number of a shard, and how many there are.

    Raises:
        ValueError: the text is no shard.
    """
    number, slash, count = shard.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal() and len(shard) <= _MOST_SHARD_CHARS):
        raise ValueError(f"shard: got {shard!r:.60}, expected a part such as 1/4")
    if not 1 <= int(number) <= int(count):
        raise ValueError(f"shard: got {shard!r:.60}, expected a part such as 1/4")
    return int(number), int(count)


def _inputs_of(answer: Answer) -> str:
    """Return the `--inputs` of the command that replays an answer; "" if it has none."""
    try:
        words = shlex.split(answer.replay)
    except ValueError:
        return ""
    return words[words.index("--inputs") + 1] if "--inputs" in words[:-1] else ""


def _finding(data: object) -> Finding:
    if not isinstance(data, dict):
        raise TypeError(f"findings: got {data!r:.60}, expected objects")
    _check(data, **_FINDING)
    case = data["case"]
    made = None if case is None else Case.of_text(json.dumps(case))
    return Finding(**{**data, "case": made})


def in_modes(answers: Sequence[Answer]) -> Answer:
    """Merge answers that differ only in how kernels ran into the first one, and return it."""
    whole = answers[0]
    for one in answers[1:]:
        known = {(f.kind, f.message) for f in whole.findings}
        whole.findings += [f for f in one.findings if (f.kind, f.message) not in known]
        whole.covered.add(one.covered)
        whole.modes += one.modes
        whole.seconds += one.seconds
        whole.why = whole.why or one.why
        whole.judge()
    return whole


def joined(answers: Sequence[Answer]) -> Answer:
    """Return the answer of several shards of one verification.

    Raises:
        UsageError: the answers are not of one kernel and one search, or two are of one shard.
    """
    first = answers[0]
    whole = Answer(first.file, first.function, first.reference, first.seed)
    whole.tolerance, whole.replay, seen = first.tolerance, first.replay, set()
    count = _part_of(first.shard)[1]
    for one in answers:
        for name, got, want in (
            *((key, getattr(one, key), getattr(first, key)) for key in _SAME),
            ("inputs", _inputs_of(one), _inputs_of(first)),
            ("number of shards", _part_of(one.shard)[1], count),
        ):
            if got != want:
                raise UsageError(
                    f"--join: answers are of two verifications: {name} is {got!r}, and {want!r}"
                )
        if one.shard in seen:
            raise UsageError(f"--join: two answers are of shard {one.shard}")
        seen.add(one.shard)
        known = {(f.kind, f.message) for f in whole.findings}
        whole.findings += [f for f in one.findings if (f.kind, f.message) not in known]
        whole.covered.add(one.covered)
        whole.modes += [mode for mode in one.modes if mode not in whole.modes]
        whole.seconds += one.seconds
        whole.why = whole.why or one.why
    missing = [f"{n}/{count}" for n in range(1, count + 1) if f"{n}/{count}" not in seen]
    if missing and not whole.why:
        whole.why = f"the answer of shard {', '.join(missing)} is missing"
    whole.judge()
    return whole
