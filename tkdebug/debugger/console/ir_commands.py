"""Commands that look at the IR: stages, ops, layouts, registers, shared memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tkdebug.compiler.ir import Operation
from tkdebug.compiler.ir.types import element_of
from tkdebug.compiler.layouts.linear import BLOCK, LANE, REGISTER, WARP, LinearLayout
from tkdebug.debugger.goals import ChangeStage, Resume
from tkdebug.debugger.ir_text import held_by, holders, layout_of, lines_around
from tkdebug.debugger.programs import program_text
from tkdebug.debugger.stages import all_stages
from tkdebug.debugger.value_text import element_text, tensor_data, tensor_text
from tkdebug.debugger.values import InFlight, SharedBuffer, Slot, Tile, buffers, running
from tkdebug.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from tkdebug.debugger.console.shell import Console
    from tkdebug.interpreter.evaluator import Evaluator

STAGE_HELP = "in which IR kernels run: tile-ir, tile-ir:PASS, gpu-ir:PASS, gpu-ir"
_AROUND = 5
_NEEDS_TILE = "expected a tile, such as acc or %acc_2"
_ELEMENT = re.compile(r"(%?\w+)\s*\[([\d\s,]+)\]")


def stage(console: Console, rest: str) -> Resume | None:
    """Run the command `stage`."""
    debugger = console.debugger
    if not rest:
        _list_stages(console)
        return None
    debugger.choose_stage(rest)
    inspection = debugger.inspection
    if inspection is None:
        console.say(f"kernels run at {debugger.stage}", stage=str(debugger.stage))
        return None
    console.say(
        f"launch {inspection.launch.number} begins again at {debugger.stage}",
        stage=str(debugger.stage),
    )
    return ChangeStage()


def _list_stages(console: Console) -> None:
    debugger = console.debugger
    now = str(debugger.stage if debugger.inspection is None else debugger.inspection.code.stage)
    found = all_stages(*debugger.stages())
    for name in found:
        note = {"tile-ir": "  before any pass", "gpu-ir": "  after all passes"}.get(name, "")
        sign = "->" if name == now else "  "
        console.say(f"{sign} {name}{note}", stages=found, stage=now)


def list_ir(console: Console, rest: str) -> None:
    """Run the command `ir`."""
    inspection = console.debugger.at_stop
    here = inspection.here
    if here is None:
        raise UsageError("the launch has ended: no op is about to run")
    if rest and not rest.isdigit():
        raise UsageError(f"ir: expected a number of lines, got {rest}")
    around = int(rest) if rest else _AROUND
    found = lines_around(inspection.code, here.op, around, around)
    last = None
    for line in found:
        source = "" if line.source in (None, last) else str(line.source)
        last = line.source or last
        sign = "->" if line.is_current else "  "
        text = f"{source:>5} {sign} {line.text}"
        console.say(console.styled(text, "bold") if line.is_current else text)
    if console.is_json:
        console.say(
            "",
            stage=str(inspection.code.stage),
            lines=[
                {"source": each.source, "text": each.text, "is_current": each.is_current}
                for each in found
            ],
        )


# Layouts


def layout(console: Console, rest: str) -> None:
    """Run the command `layout`."""
    if not rest:
        raise UsageError(_NEEDS_TILE)
    inspection = console.debugger.at_stop
    value = inspection.ir_value(rest, console.frame)
    found = layout_of(value, rest)
    data: dict[str, Any] = {
        "shape": list(found.shape),
        "bases": {name: [list(each) for each in found.bases(name)] for name in found.in_dims},
        "copies": _copies(found),
    }
    shape, element = list(found.shape), element_of(value.type)
    console.say(f"{rest}: {element}{shape} in {_sizes(found)}", layout=data)
    for name in found.in_dims:
        for bit, base in enumerate(found.bases(name)):
            step = "free: holds copies" if not any(base) else f"+{list(base)}"
            console.say(f"  {name} {1 << bit:3d}: {step}")
    if data["copies"] > 1:
        console.say(f"  each element is held {data['copies']} times")


def _sizes(found: LinearLayout) -> str:
    names = {REGISTER: "registers", LANE: "lanes", WARP: "warps", BLOCK: "blocks"}
    parts = [
        f"{found.in_size(name)} {names[name] if found.in_size(name) > 1 else name}"
        for name in (REGISTER, LANE, WARP, BLOCK)
        if name != BLOCK or found.in_size(name) > 1
    ]
    return " x ".join(parts)


def _copies(found: LinearLayout) -> int:
    inputs = 1
    for name in found.in_dims:
        inputs *= found.in_size(name)
    return inputs >> found.out_bits


def holder(console: Console, rest: str) -> None:
    """Run the command `holder`."""
    match = _ELEMENT.fullmatch(rest)
    if match is None:
        raise UsageError("expected an element of a tile, such as acc[3, 17] or %acc_2[3, 17]")
    name, element = match[1], tuple(int(word) for word in match[2].split(",") if word.strip())
    inspection = console.debugger.at_stop
    found = layout_of(inspection.ir_value(name, console.frame), name)
    has_blocks = found.in_size(BLOCK) > 1
    shown = f"{name}[{', '.join(map(str, element))}]"
    held = holders(found, element, name)
    for each in held[:8]:
        console.say(f"{shown}: {each.text(has_blocks)}")
    if len(held) > 8:
        console.say(f"… and {len(held) - 8} more hold it")
    if console.is_json:
        console.say(
            "",
            holders=[
                {"block": e.block, "warp": e.warp, "lane": e.lane, "register": e.register}
                for e in held
            ],
        )


def registers(console: Console, rest: str) -> None:
    """Run the command `registers`."""
    words = rest.split()
    if len(words) != 3 or not all(word.isdigit() for word in words[1:]):
        raise UsageError("expected a tile, a warp and a lane, such as acc 0 12")
    name, warp, lane = words[0], int(words[1]), int(words[2])
    inspection = console.debugger.at_stop
    value = inspection.ir_value(name, console.frame)
    elements = held_by(layout_of(value, name), warp, lane)
    reading = inspection.read_ir(value)
    if not isinstance(reading, Tile):
        reason = getattr(reading, "reason", "it holds pointers; `p` shows them")
        raise UsageError(f"{name}: not available: {reason}")
    programs = inspection.programs
    tile = reading.data[0]
    if len(programs) > 1:
        console.say(f"program {program_text(programs[0], inspection.launch.grid)}:")
    for register, element in enumerate(elements):
        place = ", ".join(map(str, element))
        console.say(f"  r{register:<3d} {name}[{place}] = {element_text(tile[element])}")
    if console.is_json:
        console.say(
            "",
            registers=[
                {"element": list(each), "value": element_text(tile[each])} for each in elements
            ],
        )


# Shared memory


def shared(console: Console, rest: str) -> None:
    """Run the command `shared`."""
    inspection = console.debugger.at_stop
    if inspection.here is None:
        raise UsageError("the launch has ended: its shared memory is gone")
    if not inspection.code.stage.is_gpu:
        raise UsageError(
            f"{inspection.code.stage} has no shared memory; `stage gpu-ir` begins the launch again "
            "in GPU IR"
        )
    programs = inspection.programs
    if not programs:
        raise UsageError(f"none of {inspection.selection.text(inspection.launch.grid)} is here")
    run, names = inspection.here.run, inspection.code.printed.names
    position = programs[0] - run.first
    found = buffers(run, position)
    wanted = rest.removeprefix("%")
    if rest:
        found = [one for one in found if names[one.value] == wanted]
        if not found:
            raise UsageError(f"{rest}: no buffer that is in use here; `shared` lists them")
    if len(programs) > 1:
        console.say(f"program {program_text(programs[0], inspection.launch.grid)}:")
    if not found:
        console.say("no buffer is in use here")
    for one in found:
        _say_buffer(console, one, names[one.value])
    flying = [] if rest else running(run, position)
    for each in flying:
        console.say(f"running: {_op_place(each.op)}, {each.group}")
    if console.is_json:
        _add_data(console, run, found, flying)


def _add_data(
    console: Console, run: Evaluator, found: list[SharedBuffer], flying: list[InFlight]
) -> None:
    names = console.debugger.at_stop.code.printed.names
    console.say(
        "",
        buffers=[
            {
                "name": f"%{names[one.value]}",
                "line": one.op.location.primary.line,
                "offset_bytes": one.offset_bytes,
                "size_bytes": one.size_bytes,
                "slots": [_slot_data(slot) for slot in one.slots],
            }
            for one in found
        ],
        running=[_flight_data(each) for each in flying],
    )


def _slot_data(slot: Slot) -> dict[str, Any]:
    return {
        "copies": [_flight_data(each) for each in slot.copies],
        "is_poison": slot.is_poison,
        "mbarrier": slot.mbarrier,
        "contents": tensor_data(slot.data),
    }


def _flight_data(each: InFlight) -> dict[str, Any]:
    return {"op": each.op.name, "line": each.op.location.primary.line, "group": each.group}


def _say_buffer(console: Console, one: SharedBuffer, name: str) -> None:
    offset = "" if one.offset_bytes is None else f" at offset {one.offset_bytes}"
    line = one.op.location.primary.line
    console.say(f"%{name}, line {line}: {one.size_bytes} bytes{offset}")
    many = len(one.slots) > 1
    for index, slot in enumerate(one.slots):
        for text in _slot_lines(slot):
            console.say(f"  {f'slot {index}: ' if many else ''}{text}")


def _slot_lines(slot: Slot) -> Iterator[str]:
    for copy in slot.copies:
        group = f", {copy.group}" if copy.group else ""
        yield f"a copy is on its way: {_op_place(copy.op)}{group}"
    if slot.mbarrier:
        yield slot.mbarrier
    elif slot.is_poison and not slot.copies:
        yield "not written"
    elif not slot.is_poison:
        yield _contents(slot.data)


def _contents(data: Tensor) -> str:
    return tensor_text(data)


def _op_place(op: Operation) -> str:
    return f"{op.name} of line {op.location.primary.line}"
