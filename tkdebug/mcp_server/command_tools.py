"""Tools that run a command: `run`, `why`, `reproduce`, `passes`, `lines`, `advise`, `compare`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio.to_thread

from tkdebug.errors import UsageError, instead_of
from tkdebug.findings.fault_kinds import fault_kinds
from tkdebug.knobs.values import MODE_NAMES
from tkdebug.mcp_server.answers import Answer, Basis, Item
from tkdebug.mcp_server.children import Finished, replay_of
from tkdebug.mcp_server.desk import USUAL_SECONDS, Call, Desk, script_words, target_words
from tkdebug.mcp_server.parameters import Parameter
from tkdebug.mcp_server.recorded_tools import basis_of, fault_item, run_facts
from tkdebug.process.named_files import read_text

_KEPT_LINES = 40
_MOST_ANSWER_BYTES = 16 << 20
_FOLDER = ".tkdebug"
# No second command of the debugger's.
ONE_COMMAND = r"(?:(?!;;).)+"
_PLACE = r"(?:[^:;]+:)?\d+"
ARGS = Parameter("args", "arguments of the script", "words")
SECONDS = Parameter("seconds", "how long it may take, 300 by default", "integer", low=1, high=3600)
SCRIPT = Parameter("script", "a Python script in the folder", "file", is_required=True)
TARGET = Parameter(
    "target",
    "a Python script, which is run for it, or a recorded run.tkd",
    "file",
    is_required=True,
)
KERNEL = Parameter("kernel", "only kernels of that name or pattern")
LINE = Parameter("line", "only that source line, [FILE:]N", pattern=_PLACE, example="a.py:20")
CHECK = Parameter(
    "check",
    "checks beside the usual ones: race, uninitialised-read, undefined-value, all",
    "words",
    pattern=r"[\w-]+",
    example="race",
)
RUN = (
    SCRIPT,
    ARGS,
    Parameter(
        "mode",
        "how kernels run; native where there is a GPU, else interpret",
        choices=MODE_NAMES,
    ),
    CHECK,
    Parameter(
        "watch",
        "values to record, each FILE:LINE:NAME",
        "words",
        pattern=r"[^:]+:\d+:.+",
        example="a.py:20:acc",
    ),
    Parameter(
        "cause", "keep inputs, so that causes are found where they change afterwards", "flag"
    ),
    Parameter("advise", "record what would make the kernels faster", "flag"),
    Parameter("session", f"where to record; {_FOLDER}/SCRIPT.tkd by default", "session"),
    SECONDS,
)
WHY = (
    SCRIPT,
    ARGS,
    Parameter(
        "what",
        "an element as out[3, 17], or a variable",
        is_required=True,
        pattern=ONE_COMMAND,
        example="out[3, 17]",
    ),
    Parameter(
        "at",
        "stop at that line, [FILE:]N; at the end of the launch by default",
        pattern=_PLACE,
        example="a.py:20",
    ),
    Parameter(
        "condition",
        "stop there where that holds, such as pid == 3",
        pattern=ONE_COMMAND,
        example="pid == 3",
    ),
    Parameter(
        "kernel",
        "at the end of that kernel's launch, where `at` is not given",
        pattern=r"[\w.]+",
        example="add_kernel",
    ),
    Parameter(
        "question",
        "value: what it was computed from; nan: where its NaN was born; not-written: who missed it",
        choices=("value", "nan", "not-written"),
    ),
    SECONDS,
)
PASSES = (
    TARGET,
    ARGS,
    KERNEL,
    LINE,
    Parameter("number", "the changes of the pass of that number", "integer", low=0, high=10**6),
    SECONDS,
)
LINES = (TARGET, ARGS, KERNEL, LINE, SECONDS)
ADVISE = (TARGET, ARGS, KERNEL, SECONDS)
REPRODUCE = (
    replace(
        TARGET,
        help="a Python script, a recorded run.tkd, whose script is run for it, or an answer.json "
        "of `tkdebug verify --format json`",
    ),
    ARGS,
    Parameter(
        "fault",
        "the number of the fault, as `faults` has it; by default the first that fails the run, "
        "else the first warning",
        "integer",
        low=0,
        high=10**6,
    ),
    CHECK,
    SECONDS,
)
COMPARE = (
    Parameter("before", "a recorded run", "file", is_required=True),
    Parameter("after", "a later one", "file", is_required=True),
)
_NAMED = r"[\w.]+:\w+"
VERIFY = (
    Parameter("file", "the kernel's Python file in the folder", "file", is_required=True),
    Parameter(
        "function",
        "the function in it that launches the kernel; KernelBench's ModelNew by default",
        pattern=r"\w+",
        example="softmax",
    ),
    Parameter(
        "reference",
        "what says what is right, module:function or module:class; modules beside the file are "
        "found",
        is_required=True,
        pattern=_NAMED,
        example="problem:Model",
    ),
    Parameter(
        "inputs",
        "gives a list of example arguments; get_inputs of the reference's file, or of the "
        "kernel's, by default",
        pattern=_NAMED,
        example="problem:get_inputs",
    ),
    Parameter("seed", "of the search", "integer", low=0, high=2**31),
    Parameter("budget", "seconds of processor time, 30 by default", "integer", low=1, high=3600),
    Parameter("cases", "how many are tried at most, 600 by default", "integer", low=1, high=10**6),
    Parameter("case", "the case of an answer, as one line of JSON, to run it alone"),
    Parameter("deterministic", "the same call must give the same bits", "flag"),
    Parameter("batch_invariant", "rows must have the same bits in another batch", "flag"),
    SECONDS,
)
EXPLAIN = (Parameter("kind", "a kind of fault, such as oob-load", is_required=True),)
_QUESTIONS = {"value": "why", "nan": "why-nan", "not-written": "why-not-written"}


async def run(desk: Desk, call: Call) -> Answer:
    """Answer `run`."""
    given = call.given
    session = given.get("session")
    if session is None:
        session = _own_file(desk, f"{given['script'].stem}.tkd")
    for watch in given.get("watch", ()):
        desk.folder.inside(watch.partition(":")[0])
    before = session.stat().st_mtime_ns if session.exists() else None
    options = call.words_of("mode", "check", "watch", "cause", "advise")
    words = ["run", "--errors=json", "--no-tui", f"--output={desk.folder.word(session)}", *options]
    words += script_words(desk, call)
    done = await desk.run(call, words, keeps_all=False)
    if not session.exists() or session.stat().st_mtime_ns == before:
        done.refuse_error()
        raise UsageError(f"`{replay_of(words)}` recorded nothing: {done.err.strip()[-400:]}")
    model = await desk.model(call, session)
    evidence = {"session": desk.folder.word(session), **run_facts(model)}
    evidence["exit_status"] = done.status
    steps: list[Item] = [
        {"look_at": each["kind"], **desk.place(each.get("place")), "text": each["text"]}
        for each in model.get("steps", ())
    ]
    found = [fault_item(desk, model, each) for each in model.get("faults", ())]
    facts = {"faults": len(found), "remarks": len(model.get("remarks", ()))}
    items = [*steps, *found, *_output(done)]
    return Answer(basis_of(model), replay_of(words), evidence, facts, items)


async def why(desk: Desk, call: Call) -> Answer:
    """Answer `why`."""
    given = call.given
    at, kernel = given.get("at"), given.get("kernel", "")
    condition = f" if {given['condition']}" if "condition" in given else ""
    if at is not None and ":" in at:
        desk.folder.inside(at.rpartition(":")[0])
    stop = f"b {at}{condition}" if at is not None else f"b end {kernel}".strip()
    question = f"{_QUESTIONS[given.get('question', 'value')]} {given['what']}"
    words = ["debug", "--errors=json", "--no-rc"]
    shown = ["debug"]
    for each in (stop, "c", question, "q"):
        words += ["-c", each]
        shown += ["-c", each]
    words += ["--json", *script_words(desk, call)]
    shown += script_words(desk, call)
    done = await desk.run(call, words)
    done.refuse_error()
    answers = [each for each in _events(done) if each["event"] == "answer"]
    failed = next((each for each in answers if not each["ok"]), None)
    if failed is not None:
        raise UsageError(f"{failed['command']}: {failed['error']}")
    stops = [each for each in _events(done) if each["event"] == "stop"]
    found = next((each for each in answers if each["command"] == question), None)
    if found is None or not stops:
        raise UsageError(
            f"at: got {stop!r}, at which nothing stopped, expected a place that a launch comes to; "
            f"{done.err.strip()[-400:]}"
        )
    evidence = {key: stops[0][key] for key in ("kernel", "launch", "frames", "census")}
    facts = {"what": found.get("what"), "program": found.get("program")}
    items: list[Item] = [{"text": line} for line in found["text"]]
    return Answer("interpreted", replay_of(shown), evidence, facts, items)


async def reproduce(desk: Desk, call: Call) -> Answer:
    """Answer `reproduce`."""
    target, fault = call.given["target"], call.given.get("fault")
    end = target_words(desk, call)
    if target.suffix == ".tkd":
        model = await desk.model(call, target)
        _refuse_elsewhere(desk, target, str(model["run"].get("script") or ""))
        faults = len(model.get("faults", ()))
        if fault is not None and fault >= faults:
            raise UsageError(
                f"fault: got {fault}, expected a number that `faults` has; the run has {faults}"
            )
    elif target.suffix == ".json":
        await anyio.to_thread.run_sync(_refuse_case_elsewhere, desk, target)
    short = _own_file(desk, f"{target.stem}_short.py")
    _own_file(desk, f"{target.stem}_short.safetensors")  # its tensors
    seconds = call.given.get("seconds", USUAL_SECONDS)
    words = ["reproduce", "--errors=json", "--format=json", f"--output={desk.folder.word(short)}"]
    words += [f"--budget={max(1, seconds // 3)}", *call.words_of("check")]
    words += [] if fault is None else [f"--fault={fault + 1}"]
    data = await _json_of(desk, call, [*words, *end])
    names = ("kind", "kernel", "statement", "lines", "kept", "is_whole", "data_file")
    facts = {name: data[name] for name in names}
    facts["file"] = desk.folder.word(short)
    evidence = _target_of(desk, call) | {"from": data["from"], "to": data["to"]}
    items: list[Item] = [{"text": line} for line in short.read_text("utf-8").splitlines()]
    return Answer("interpreted", data["command"], evidence, facts, items)


def _own_file(desk: Desk, name: str) -> Path:
    """Return a file to write in the tools' own folder, which is made if it is missing.

    Raises:
        UsageError: the file lies elsewhere, by a link, or the folder cannot be made.
    """
    path = desk.folder.inside(f"{_FOLDER}/{name}")
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"{_FOLDER}: cannot be made ({error.strerror})") from error
    return path


def _refuse_elsewhere(desk: Desk, session: Path, script: str) -> None:
    """Refuse a recorded run whose script would be run from elsewhere.

    Raises:
        UsageError: the script lies outside of the folder, or is not there.
    """
    shown = desk.folder.shown(script)
    beside = os.path.join(os.path.dirname(desk.folder.word(session)), shown)
    module = shown.replace(".", "/")
    # As `tkdebug reproduce` looks for it: here, beside the session, and as a module.
    names = (shown, beside, f"{module}.py", f"{module}/__main__.py")
    try:
        for name in names:
            if desk.folder.inside(name).is_file():
                return
    except UsageError as error:
        raise UsageError(f"target: its script: {error}") from None
    raise UsageError(
        f"target: got a run of {script[:80]!r}, expected one of a script in the folder of the "
        "server; give the script itself"
    )


def _refuse_case_elsewhere(desk: Desk, answer: Path) -> None:
    """Refuse an answer of `verify` about a kernel elsewhere.

    Raises:
        UsageError: the kernel's file lies outside of the folder, or the answer cannot be read.
    """
    try:
        file = json.loads(read_text(answer, _MOST_ANSWER_BYTES))["file"]
        desk.folder.inside(desk.folder.shown(str(file)))
    except UsageError as error:
        raise UsageError(f"target: its kernel: {error}") from None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise UsageError(
            f"target: got no answer of `tkdebug verify --format json` ({type(error).__name__}), "
            "expected one, a script or a recorded run"
        ) from error


async def passes(desk: Desk, call: Call) -> Answer:
    """Answer `passes`."""
    words = ["passes", "--errors=json", "--format=json", *call.words_of("kernel", "line")]
    words += target_words(desk, call)
    data = await _json_of(desk, call, words)
    number = call.given.get("number")
    items: list[Item] = []
    for kernel in data["kernels"]:
        items.append(_kernel_item(desk, kernel))
        for each in kernel.get("passes") or ():
            if number is None:
                names = ("number", "name", "time_ns", "ops", "counts", "error")
                items.append({name: each[name] for name in names if each.get(name) is not None})
            elif each["number"] == number:
                items.append({"number": number, "name": each["name"], "counts": each["counts"]})
                items += each["changes"]
        for step in (kernel.get("life") or {}).get("steps", ()):
            items.append({"step": step["name"], "stage": step["stage"]})
            items += step["changes"]
            items += step["lines"]
    return Answer("compiled", replay_of(words), _target_of(desk, call), {}, items)


async def lines(desk: Desk, call: Call) -> Answer:
    """Answer `lines`."""
    words = ["lines", "--errors=json", "--format=json", *call.words_of("kernel", "line")]
    words += target_words(desk, call)
    data = await _json_of(desk, call, words)
    items: list[Item] = []
    for kernel in data["kernels"]:
        items.append(_kernel_item(desk, kernel))
        rows = sorted(kernel.get("lines", ()), key=lambda row: -row["instructions"])
        items += ({**row, "file": desk.folder.shown(row["file"] or "")} for row in rows)
        for stage, texts in kernel.get("stages", {}).items():
            items += ({"stage": stage, **each} for each in texts)
        if call.given.get("line") is not None:
            items += kernel.get("sass", ())
    return Answer("compiled", replay_of(words), _target_of(desk, call), {}, items)


async def advise(desk: Desk, call: Call) -> Answer:
    """Answer `advise`."""
    words = ["advise", "--errors=json", "--format=json", *call.words_of("kernel")]
    words += target_words(desk, call)
    data = await _json_of(desk, call, words)
    items: list[Item] = [
        {**each, "file": desk.folder.shown(each["file"] or "")} for each in data["remarks"]
    ]
    measured = any(each.get("times") not in (None, "predicted") for each in data["remarks"])
    basis: Basis = "measured" if measured else "predicted"
    facts = {"remarks": len(items)}
    return Answer(basis, replay_of(words), _target_of(desk, call), facts, items)


async def compare(desk: Desk, call: Call) -> Answer:
    """Answer `compare`."""
    before, after = (desk.folder.word(call.given[name]) for name in ("before", "after"))
    words = ["compare", "--errors=json", "--format=json", before, after]
    data = await _json_of(desk, call, words)
    items: list[Item] = []
    for name in ("new_faults", "gone_faults", "new_remarks", "gone_remarks", "kernels"):
        for each in data[name]:
            file = desk.folder.shown(each.get("file") or "")
            what = name.removesuffix("s").replace("_", " ")
            items.append({"what": what, **each, **({"file": file} if file else {})})
    facts = {name: len(data[name]) for name in ("new_faults", "gone_faults")}
    facts["kept_faults"] = data["kept_faults"]
    native = all("native" in data[name].get("mode", "") for name in ("before", "after"))
    evidence = {"before": {"session": before, **data["before"]}}
    evidence["after"] = {"session": after, **data["after"]}
    basis: Basis = "measured" if native else "interpreted"
    return Answer(basis, replay_of(words), evidence, facts, items)


async def verify(desk: Desk, call: Call) -> Answer:
    """Answer `verify`."""
    given = call.given
    options = call.words_of(
        *("reference", "inputs", "seed", "budget", "cases", "case"),
        *("deterministic", "batch_invariant"),
    )
    name = desk.folder.word(given["file"])
    if "function" in given:
        name = f"{name}:{given['function']}"
    words = ["verify", "--errors=json", "--format=json", *options, "--", name]
    data = await _json_of(desk, call, words)
    items: list[Item] = [
        {**each, "file": desk.folder.shown(each["file"] or "")} for each in data["findings"]
    ]
    facts = {key: data[key] for key in ("verdict", "why", "tolerance")}
    covered = data["covered"]
    evidence = {key: covered[key] for key in ("cases", "elements", "launches", "kernels", "notes")}
    evidence["seed"] = data["seed"]
    basis: Basis = "measured" if "native" in data["modes"] else "interpreted"
    return Answer(basis, data["replay"], evidence, facts, items)


async def explain(desk: Desk, call: Call) -> Answer:
    """Answer `explain`."""
    name = call.given["kind"]
    kind = fault_kinds().get(name)
    if kind is None:
        hint = instead_of(name, fault_kinds())
        raise UsageError(f"kind: got {name!r}, expected a kind of fault{hint}")
    facts = kind.as_json(has_text=False)
    items: list[Item] = [{"text": each} for each in kind.text.split("\n\n")]
    evidence = {"page": f"docs/faults.md#{name}"}
    return Answer("documented", replay_of(["explain", name]), evidence, facts, items)


async def _json_of(desk: Desk, call: Call, words: list[str]) -> Any:
    return (await desk.run(call, words)).answer()


def _target_of(desk: Desk, call: Call) -> dict[str, object]:
    target = call.given["target"]
    what = {".tkd": "session", ".json": "answer"}.get(target.suffix, "script")
    return {what: desk.folder.word(target)}


def _kernel_item(desk: Desk, kernel: Mapping[str, Any]) -> dict[str, object]:
    """Return an item about a kernel as a whole, to which the next items belong."""
    names = ("variant", "signature", "target", "error", "note", "instructions", "mapped_percent")
    item: dict[str, object] = {"kernel": kernel.get("kernel") or kernel.get("name")}
    item |= desk.place((kernel["file"], kernel["line"]) if kernel.get("file") else None)
    return item | {name: kernel[name] for name in names if kernel.get(name)}


def _events(done: Finished) -> Iterator[dict[str, Any]]:
    for line in done.out.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue  # printed by what the script started
        if isinstance(record, dict) and "event" in record:
            yield record


def _output(done: Finished) -> Iterator[Item]:
    """Yield the last lines that the script printed."""
    for stream, text in (("stdout", done.out.decode(errors="replace")), ("stderr", done.err)):
        for line in text.strip("\n").split("\n")[-_KEPT_LINES:]:
            if line:
                yield {stream: line[:500]}
