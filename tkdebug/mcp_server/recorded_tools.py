"""Tools that read a recorded run: faults, causes, annotated source, watched values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tkdebug.errors import UsageError, instead_of
from tkdebug.mcp_server.answers import Answer, Basis, Item
from tkdebug.mcp_server.children import replay_of
from tkdebug.mcp_server.desk import Call, Desk
from tkdebug.mcp_server.parameters import Parameter

SESSION = Parameter(
    "session", "a recorded run, such as .tkdebug/vector_add.tkd", "file", is_required=True
)
KERNEL = Parameter("kernel", "only that kernel")
FAULTS = (SESSION, KERNEL, Parameter("kind", "only that kind, such as oob-load"))
CAUSE = (SESSION,)
SOURCE = (
    SESSION,
    Parameter("kernel", "the kernel; may be left out where the run has one"),
    Parameter("first", "the first line; the kernel's by default", "integer", low=1, high=10**7),
    Parameter("last", "the last line; the kernel's by default", "integer", low=1, high=10**7),
)
VALUES = (SESSION, Parameter("name", "only that variable"))


async def faults(desk: Desk, call: Call) -> Answer:
    """Answer `faults`."""
    model = await desk.model(call, call.given["session"])
    kind, kernel = call.given.get("kind"), call.given.get("kernel")
    found = [
        fault_item(desk, model, fault)
        for fault in model.get("faults", ())
        if kind in (None, fault["kind"]) and kernel in (None, fault.get("kernel"))
    ]
    return _of_session(desk, call, model, found, {"faults": len(found)})


async def cause(desk: Desk, call: Call) -> Answer:
    """Answer `cause`."""
    model = await desk.model(call, call.given["session"])
    wrong = [fault for fault in model.get("faults", ()) if fault["kind"] == "mismatch"]
    if not wrong:
        raise UsageError(
            "session: got a run in which no comparison failed, expected one with a `mismatch`; "
            "compare the result in the script, by torch.testing.assert_close or tkdebug.expect"
        )
    items = [fault_item(desk, model, fault, with_cause=True) for fault in wrong]
    return _of_session(desk, call, model, items)


async def source(desk: Desk, call: Call) -> Answer:
    """Answer `source`."""
    model = await desk.model(call, call.given["session"])
    kernel = _kernel_of(model, call.given.get("kernel"))
    variants = kernel.get("variants", ())
    variant = variants[0] if variants else {}
    first = call.given.get("first", kernel.get("line", 1))
    last = call.given.get("last", kernel.get("end_line", first))
    texts = _texts(model)
    known = {tuple(line["place"]): line for line in variant.get("lines", ())}
    items: list[Item] = []
    for number in range(first, min(last, first + 5000) + 1):
        lines = texts.get(kernel.get("file", ""), ())
        if number <= len(lines):
            facts = known.pop((kernel["file"], number), None)
            items.append({"line": number, "text": lines[number - 1], **_facts(model, facts)})
    for (file, number), facts in known.items():
        lines = texts.get(file, ())
        text = lines[number - 1] if number <= len(lines) else ""
        notes = _facts(model, facts)
        is_left_out = file == kernel.get("file") and not first <= number <= last
        if notes and not is_left_out:
            place = desk.place((file, number))
            items.append({**place, "text": text, "called_from": kernel["name"], **notes})
    head = {
        "kernel": kernel["name"],
        "file": desk.folder.shown(kernel.get("file", "")),
        "variant": variant.get("key"),
        "variants": len(variants),
        "signature": variant.get("signature"),
    }
    return _of_session(desk, call, model, items, head, form="html")


async def values(desk: Desk, call: Call) -> Answer:
    """Answer `values`."""
    model = await desk.model(call, call.given["session"])
    items = [*_watched(desk, model, call.given.get("name"))]
    if not items:
        raise UsageError(
            "session: got a run that recorded no such value, expected watched ones; `run` with "
            'watch: ["FILE:LINE:NAME"] records them'
        )
    return _of_session(desk, call, model, items, form="text")


def run_facts(model: Mapping[str, Any]) -> dict[str, object]:
    """Return what a model says of the run as a whole."""
    run = model["run"]
    return {
        "script": run.get("script"),
        "mode": run.get("mode"),
        "exit_status": run.get("exit_status"),
        "verdict": model.get("verdict", {}).get("text"),
        "launches": run.get("launches", 0),
    }


def basis_of(model: Mapping[str, Any]) -> Basis:
    """Return whether a run's values were measured or interpreted, as that word."""
    return "measured" if model["run"].get("basis") == "measured" else "interpreted"


def fault_item(
    desk: Desk, model: Mapping[str, Any], fault: Mapping[str, Any], with_cause: bool = False
) -> dict[str, object]:
    """Return a fault of a model as an item."""
    place = desk.place(fault.get("place"))
    item: dict[str, object] = {"number": fault["number"], "kind": fault["kind"], **place}
    item["text"] = _line_text(model, fault.get("place"))
    names = ("severity", "state", "kernel", "message", "hint", "at", "of", "program", "lane")
    item |= {name: fault[name] for name in (*names, "count", "launches") if fault.get(name)}
    calls = fault.get("calls", ())[:-1]
    if calls:
        item["called_from"] = [desk.place(each) for each in calls]
    item["obtained"] = fault.get("basis") or basis_of(model)
    if fault.get("replay"):
        item["replay"] = fault["replay"]
    found = fault.get("cause")
    if found and with_cause:
        placed = {
            name: [{**e, "file": desk.folder.shown(e["file"])} for e in found[name]]
            for name in ("edits", "losses")
            if name in found
        }
        item["cause"] = {**found, **placed, "stored": desk.place(found.get("stored"))}
    elif found:
        item["cause"] = f"{found.get('verdict')}: ask `cause`"
    return item


def _of_session(
    desk: Desk,
    call: Call,
    model: Mapping[str, Any],
    items: Sequence[Item],
    facts: Mapping[str, object] | None = None,
    form: str = "text",
) -> Answer:
    session = call.given["session"]
    evidence = {"session": desk.folder.word(session), **run_facts(model)}
    words = ["report", "--format", form, desk.folder.word(session)]
    replay = replay_of([*words, *(("-o", "run.html") if form == "html" else ())])
    return Answer(basis_of(model), replay, evidence, facts or {}, items)


def _kernel_of(model: Mapping[str, Any], name: str | None) -> Mapping[str, Any]:
    kernels = model.get("kernels", ())
    names = [each["name"] for each in kernels]
    for each in kernels:
        if name == each["name"] or (name is None and len(kernels) == 1):
            found: Mapping[str, Any] = each
            return found
    got = "nothing" if name is None else repr(name)
    expected = "one of them by name" if name is None else "a kernel of the run"
    raise UsageError(f"kernel: got {got}, expected {expected}{instead_of(name or '', names)}")


def _texts(model: Mapping[str, Any]) -> dict[str, list[str]]:
    return {each["file"]: each["text"].split("\n") for each in model.get("files", ())}


def _line_text(model: Mapping[str, Any], place: Sequence[Any] | None) -> str:
    lines = _texts(model).get(place[0], ()) if place else ()
    return lines[place[1] - 1].strip() if place and 0 < place[1] <= len(lines) else ""


def _facts(model: Mapping[str, Any], line: Mapping[str, Any] | None) -> dict[str, object]:
    """Return what is known of a line, without what is not."""
    if line is None:
        return {}
    faults, remarks = model.get("faults", ()), model.get("remarks", ())
    code = line.get("code") or {}
    passes = Counter(each["kind"] for each in line.get("passes", ()))
    found = {
        "faults": [f"{n}: {faults[n]['kind']}" for n in line.get("faults", ()) if n < len(faults)],
        "advice": [remarks[n]["message"] for n in line.get("remarks", ()) if n < len(remarks)],
        "share": {name: round(share, 4) for name, share in line.get("heat", {}).items()},
        "accesses": [
            {key: each[key] for key in ("what", "tensor", "requests", "sectors", "needed")}
            for each in line.get("memory", ())
        ],
        "instructions": code.get("instructions"),
        "spilled_values": code.get("spilled_values"),
        "stalls": line.get("stalls"),
        "watched": [each["name"] for each in line.get("watches", ())],
        "passes": dict(passes),
        "rows": line.get("rows"),
    }
    return {name: value for name, value in found.items() if value}


def _watched(desk: Desk, model: Mapping[str, Any], name: str | None) -> Iterator[Item]:
    names = ("iteration", "minimum", "maximum", "mean", "nan", "inf", "values")
    for kernel in model.get("kernels", ()):
        for variant in kernel.get("variants", ()):
            for line in variant.get("lines", ()):
                for watch in line.get("watches", ()):
                    if name not in (None, watch["name"]):
                        continue
                    yield {
                        **desk.place(line["place"]),
                        "kernel": kernel["name"],
                        **{key: watch[key] for key in ("name", "type", "values", "lost")},
                        "first_nan": watch.get("first_nan"),
                    }
                    for one in watch.get("rounds", ()):
                        yield {"name": watch["name"], **dict(zip(names, one, strict=False))}
