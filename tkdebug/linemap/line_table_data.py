"""A line table as JSON-like data, as sessions and reports hold it, and back.

The data may be of anybody's making: every value is checked, and any mistake is one
`LineTableError`. Chains and files are stored once each. Machine code that was not read when a
session was recorded is data of schema 2, and is read by `from_data`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from tkdebug.errors import Frame
from tkdebug.linemap.line_table import AssemblerNote, Instruction, LineTable, LineTableError
from tkdebug.linemap.parts import Frames, LocalFunction, Occupancy, OpPlace, Resources

if TYPE_CHECKING:
    from tkdebug.linemap.nvidia.unread_code import UnreadCode

SCHEMA = 1
UNREAD_SCHEMA = 2
_MAX_ROWS = 2_000_000
_T = TypeVar("_T")
Data = dict[str, object]


def to_data(table: LineTable) -> Data:
    """`table` as lists, numbers and texts."""
    chains = _Chains()
    ops = [
        [
            op.id,
            op.tile_name,
            op.gpu_name,
            op.column,
            [chains.number(chain) for chain in op.chains],
            list(op.origins),
            [chains.number(chain) for chain in op.tile_chains],
        ]
        for op in table.ops.values()
    ]
    sass = [
        [
            *(i.address, i.text, i.ptx_line, i.op_id, chains.number(i.frames), i.live_registers),
            *((i.control,) if i.target is None else (i.control, i.target)),
        ]
        for i in table.instructions
    ]
    notes = [[note.code, note.message, chains.number(note.frames)] for note in table.notes]
    return {
        "schema": SCHEMA,
        "kernel": table.kernel,
        "target": table.target,
        "files": list(chains.files),
        "chains": chains.rows,
        "ops": ops,
        "sass": sass,
        "ptx": [list(item) for item in table.ptx_ops.items()],
        "llvm": [list(item) for item in table.llvm_ops.items()],
        "resources": None if table.resources is None else _resources_data(table.resources),
        "notes": notes,
        "local_functions": [
            [f.name, f.start, f.end, [chains.number(chain) for chain in f.callers]]
            for f in table.local_functions
        ],
        "tests": list(table.tests),
    }


def unread_data(code: UnreadCode) -> Data:
    """Return data of schema 2: a table whose machine code is not read yet."""
    return {
        **to_data(code.table),
        "schema": UNREAD_SCHEMA,
        "cubin": base64.b64encode(code.cubin).decode(),
        "op_of_line": [list(item) for item in code.op_of_line.items()],
        "entry": [[frame.file, frame.line, frame.function] for frame in code.entry],
    }


def absent(reason: str) -> Data:
    """Return data for a table that could not be made; reading it raises with `reason`."""
    return {"schema": SCHEMA, "absent": reason}


def from_data(data: object) -> LineTable:
    """The table that `data` holds; machine code that was not read yet is read now.

    Raises:
        LineTableError: the data is no table, of a newer schema, in place of an absent one, or its
            machine code cannot be read.
    """
    try:
        fields = _mapping(data)
        table = _table(fields)
        return _read(table, fields) if "cubin" in fields else table
    except LineTableError:
        raise
    except (ValueError, IndexError, KeyError, RecursionError) as error:
        raise LineTableError(f"line table is damaged ({error}); record the run again") from None


def _read(table: LineTable, fields: Mapping[str, object]) -> LineTable:
    # With pyelftools, which only tables of unread code need.
    from tkdebug.linemap.nvidia.cubins import CubinError
    from tkdebug.linemap.nvidia.unread_code import UnreadCode, read_code

    rows = (_exactly(row, 2) for row in _rows(fields["op_of_line"]))
    op_of_line = {_integer(line): _optional(op, _integer) for line, op in rows}
    chain = (_exactly(row, 3) for row in _rows(fields["entry"]))
    entry = tuple(Frame(_text(file), _integer(line), _text(name)) for file, line, name in chain)
    cubin = base64.b64decode(_text(fields["cubin"]), validate=True)
    try:
        return read_code(UnreadCode(table, cubin, op_of_line, entry))
    except CubinError as error:
        raise LineTableError(f"kernel {table.kernel}: {error}") from None


class _Chains:
    """Numbers for call chains and files."""

    def __init__(self) -> None:
        self.files: dict[str, int] = {}
        self.rows: list[list[list[object]]] = []
        self._numbers: dict[Frames, int] = {}

    def number(self, chain: Frames) -> int:
        if chain not in self._numbers:
            self._numbers[chain] = len(self.rows)
            files = self.files
            self.rows.append(
                [[files.setdefault(f.file, len(files)), f.line, f.function] for f in chain]
            )
        return self._numbers[chain]


def _resources_data(resources: Resources) -> Data:
    occupancy = resources.occupancy
    return {
        "registers": resources.registers,
        "threads": resources.threads,
        "static_shared_bytes": resources.static_shared_bytes,
        "dynamic_shared_bytes": resources.dynamic_shared_bytes,
        "stack_bytes": resources.stack_bytes,
        "spill_store_bytes": resources.spill_store_bytes,
        "spill_load_bytes": resources.spill_load_bytes,
        "occupancy": None
        if occupancy is None
        else {
            "blocks": occupancy.blocks,
            "warps": occupancy.warps,
            "max_warps": occupancy.max_warps,
            "limits": dict(occupancy.limits),
            "limited_by": list(occupancy.limited_by),
        },
    }


def _table(data: Mapping[str, object]) -> LineTable:
    schema = _integer(data["schema"])
    if schema > UNREAD_SCHEMA:
        raise LineTableError(
            f"line table has schema {schema}, this tkdebug reads up to {UNREAD_SCHEMA}"
        )
    if "absent" in data:
        raise LineTableError(_text(data["absent"]))
    files = [_text(file) for file in _rows(data["files"])]
    chains = [_chain(row, files) for row in _rows(data["chains"])]
    resources = data["resources"]
    table = LineTable(
        kernel=_text(data["kernel"]),
        target=_text(data["target"]),
        ops={op.id: op for op in (_op(row, chains) for row in _rows(data["ops"]))},
        instructions=tuple(
            sorted(
                (_instruction(row, chains) for row in _rows(data["sass"])),
                key=lambda instruction: instruction.address,
            )
        ),
        ptx_ops=dict(_pairs(data["ptx"])),
        llvm_ops=dict(_pairs(data["llvm"])),
        resources=None if resources is None else _resources(_mapping(resources)),
        # Sessions of the first versions have none.
        notes=tuple(_note(row, chains) for row in _rows(data.get("notes", ()))),
        local_functions=tuple(
            _local_function(row, chains) for row in _rows(data.get("local_functions", ()))
        ),
        tests=tuple(map(_text, _rows(data.get("tests", ())))),
    )
    _check_ops(table)
    return table


def _check_ops(table: LineTable) -> None:
    named = {i.op_id for i in table.instructions if i.op_id is not None}
    named |= {*table.ptx_ops.values(), *table.llvm_ops.values()}
    named |= {origin for op in table.ops.values() for origin in op.origins}
    unknown = sorted(named - table.ops.keys())
    if unknown:
        raise ValueError(f"got op {unknown[0]}, expected one of {len(table.ops)}")
    if any(not op.chains for op in table.ops.values()):
        raise ValueError("an op has no place")


def _chain(row: object, files: Sequence[str]) -> Frames:
    frames = []
    for item in _rows(row):
        file, line, function = _exactly(item, 3)
        frames.append(Frame(_at(files, file), _integer(line), _text(function)))
    return tuple(frames)


def _op(row: object, chains: Sequence[Frames]) -> OpPlace:
    number, tile_name, gpu_name, column, places, origins, in_tile = _exactly(row, 7)
    return OpPlace(
        _integer(number),
        _optional(tile_name, _text),
        _optional(gpu_name, _text),
        tuple(_at(chains, place) for place in _rows(places)),
        _integer(column),
        tuple(_integer(origin) for origin in _rows(origins)),
        tuple(_at(chains, place) for place in _rows(in_tile)),
    )


def _instruction(row: object, chains: Sequence[Frames]) -> Instruction:
    # Sessions of the first versions end with the registers; most instructions jump nowhere.
    known = _rows(row)
    control, target = (*known[6:8], None, None)[:2]
    address, text, ptx_line, op_id, chain, live = _exactly(known[:6], 6)
    return Instruction(
        _integer(address),
        _text(text),
        _optional(ptx_line, _integer),
        _optional(op_id, _integer),
        _at(chains, chain),
        _optional(live, _integer),
        _optional(control, _integer),
        _optional(target, _integer),
    )


def _note(row: object, chains: Sequence[Frames]) -> AssemblerNote:
    code, message, chain = _exactly(row, 3)
    return AssemblerNote(_text(code), _text(message), _at(chains, chain))


def _local_function(row: object, chains: Sequence[Frames]) -> LocalFunction:
    name, start, end, callers = _exactly(row, 4)
    return LocalFunction(
        _text(name),
        _integer(start),
        _integer(end),
        tuple(_at(chains, chain) for chain in _rows(callers)),
    )


def _resources(data: Mapping[str, object]) -> Resources:
    def optional(name: str) -> int | None:
        return _optional(data[name], _integer)

    return Resources(
        registers=_integer(data["registers"]),
        threads=optional("threads"),
        static_shared_bytes=_integer(data["static_shared_bytes"]),
        dynamic_shared_bytes=optional("dynamic_shared_bytes"),
        stack_bytes=_integer(data["stack_bytes"]),
        spill_store_bytes=optional("spill_store_bytes"),
        spill_load_bytes=optional("spill_load_bytes"),
        occupancy=_optional(data["occupancy"], _occupancy),
    )


def _occupancy(data: object) -> Occupancy:
    fields = _mapping(data)
    limits = _mapping(fields["limits"])
    return Occupancy(
        blocks=_integer(fields["blocks"]),
        warps=_integer(fields["warps"]),
        max_warps=max(1, _integer(fields["max_warps"])),
        limits={name: _integer(value) for name, value in limits.items()},
        limited_by=tuple(_text(name) for name in _rows(fields["limited_by"])),
    )


def _pairs(value: object) -> list[tuple[int, int]]:
    pairs = (_exactly(row, 2) for row in _rows(value))
    return [(_integer(first), _integer(second)) for first, second in pairs]


def _integer(value: object) -> int:
    if not isinstance(value, int) or abs(value) >= 1 << 63:
        raise ValueError(f"got {value!r:.60}, expected a number")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"got {value!r:.60}, expected text")
    return value


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ValueError(f"got {value!r:.60}, expected an object")
    return cast("Mapping[str, object]", value)


def _rows(value: object) -> Sequence[object]:
    if not isinstance(value, (list, tuple)) or len(value) > _MAX_ROWS:
        raise ValueError(f"got {value!r:.60}, expected a list")
    return value


def _exactly(value: object, length: int) -> Sequence[object]:
    row = _rows(value)
    if len(row) != length:
        raise ValueError(f"got {value!r:.60}, expected {length} values")
    return row


def _at(values: Sequence[_T], index: object) -> _T:
    number = _integer(index)
    if number < 0:
        raise ValueError(f"got index {number}")
    return values[number]


def _optional(value: object, read: Callable[[object], _T]) -> _T | None:
    return None if value is None else read(value)
