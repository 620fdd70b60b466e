"""What compiler passes did, as it lies in the `passes` table: to JSON and back.

Responsible for the bounds: a pass whose ops or rewrites would take too much room keeps its name,
time and stages only. Reading trusts nothing; it raises `ValueError` on what is not as written here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from tkdebug.events import CompilerPass, OpFacts, Rewrite
from tkdebug.instrument import decode

MAX_CHARS = 8 << 20
COLUMNS = "name, before, after, time_ns, error, rewrites, op_ids, ops"
# The same, cut where what lies there is longer than what is ever written.
BOUNDED_COLUMNS = ", ".join(
    column if column == "time_ns" else f"substr({column}, 1, {MAX_CHARS + 1})"
    for column in COLUMNS.split(", ")
)
Row = tuple[object, ...]


def to_row(compiler_pass: CompilerPass) -> Row:
    """The values of `COLUMNS`."""
    files: dict[str, int] = {}
    rewrite_lists = [_rewrite_list(rewrite, files) for rewrite in compiler_pass.rewrites]
    ops = json.dumps({id_: _op_list(op, files) for id_, op in compiler_pass.ops.items()})
    rewrites = json.dumps([list(files), rewrite_lists])
    op_ids = None if compiler_pass.op_ids is None else json.dumps(compiler_pass.op_ids)
    if len(rewrites) + len(ops) + len(op_ids or "") > MAX_CHARS:
        rewrites, ops, op_ids = "[[], []]", "{}", None
    return (
        compiler_pass.name,
        compiler_pass.before,
        compiler_pass.after,
        compiler_pass.time_ns,
        compiler_pass.error,
        rewrites,
        op_ids,
        ops,
    )


def _rewrite_list(rewrite: Rewrite, files: dict[str, int]) -> list[object]:
    return [
        rewrite.rule,
        rewrite.old_op_ids,
        rewrite.new_op_ids,
        _place_list(rewrite.erased, files),
    ]


def _op_list(op: OpFacts, files: dict[str, int]) -> list[object]:
    places = _place_list(op.places, files)
    return [op.name, dict(op.attributes), op.types, op.parent, op.region, places]


def _place_list(places: Iterable[tuple[str, int]], files: dict[str, int]) -> list[list[int]]:
    return [[files.setdefault(file, len(files)), line] for file, line in places]


def from_row(row: Row) -> CompilerPass:
    """The pass that `row`, the values of `COLUMNS`, holds."""
    name, before, after, time_ns, error, rewrites, op_ids, ops = row
    files_and_rewrites = _items(decode.json_list(rewrites), 2)
    files = [decode.text(file) for file in _list(files_and_rewrites[0])]
    return CompilerPass(
        name=decode.text(name),
        before=decode.text(before),
        after=decode.text(after),
        time_ns=decode.integer(time_ns),
        error=decode.text(error),
        rewrites=tuple(_rewrite(item, files) for item in _list(files_and_rewrites[1])),
        op_ids=None if op_ids is None else _integers(decode.json_list(op_ids)),
        ops={_id(key): _op(item, files) for key, item in decode.json_mapping(ops).items()},
    )


def _rewrite(item: object, files: list[str]) -> Rewrite:
    rule, old, new, erased = _items(item, 4)
    return Rewrite(decode.text(rule), _integers(old), _integers(new), _places(erased, files))


def _op(item: object, files: list[str]) -> OpFacts:
    name, attributes, types, parent, region, places = _items(item, 6)
    if not isinstance(attributes, Mapping):
        raise ValueError(f"got {attributes!r:.80}, expected attributes")
    return OpFacts(
        name=decode.text(name),
        attributes={key: decode.text(value) for key, value in attributes.items()},
        types=tuple(decode.text(type_) for type_ in _list(types)),
        parent=decode.optional_integer(parent),
        region=decode.integer(region),
        places=_places(places, files),
    )


def _places(items: object, files: list[str]) -> tuple[tuple[str, int], ...]:
    places = []
    for item in _list(items):
        file, line = _integers(_items(item, 2))
        if not 0 <= file < len(files):
            raise ValueError(f"got file {file}, expected one of {len(files)}")
        places.append((files[file], line))
    return tuple(places)


def _id(key: str) -> int:
    return decode.integer(key)


def _integers(items: object) -> tuple[int, ...]:
    return tuple(decode.integer(item) for item in _list(items))


def _list(item: object) -> list[object]:
    if not isinstance(item, list):
        raise ValueError(f"got {item!r:.80}, expected a list")
    return item


def _items(item: object, count: int) -> list[object]:
    items = _list(item)
    if len(items) != count:
        raise ValueError(f"got {item!r:.80}, expected {count} values")
    return items
