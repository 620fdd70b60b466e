"""The form of a record's field in a column, by the type that it was declared with.

Responsible for both ways: to SQLite's types and to data for JSON, with bounded texts, and back from
a file of which nothing is trusted. Numbers and texts are stored unchanged. Tuples and mappings are
JSON; a dataclass in them is the list of its fields. Decoding raises `ValueError` on data that no
writer leaves there.
"""

from __future__ import annotations

import json
import math
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, lru_cache
from operator import attrgetter
from typing import Annotated, Literal, Union, get_args, get_origin, get_type_hints

from tkdebug.records.storage import OPEN, REPEATED, SHORT, WIDE

MAX_TEXT_CHARS = 16 << 20
MAX_VALUE_CHARS = 4096
_CACHED = 4096  # values of a column
_LAST_NS = (1 << 63) - 1
_DIGITS = re.compile(r"-?[0-9]{1,40}", re.ASCII)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

Coder = Callable[[object], object]


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        sql_type: the type that the table declares; "" keeps both numbers and texts unchanged.
        encode: the function from the field to SQLite's value; None if SQLite takes it unchanged.
        decode: the function from SQLite's value to the field.
        kept: types of values that `decode` returns unchanged.
        is_repeated: whether many rows hold the same value.
    """

    name: str
    sql_type: str
    encode: Coder | None
    decode: Coder
    kept: frozenset[type] = frozenset()
    is_repeated: bool = False

    @property
    def is_text(self) -> bool:
        """Whether its SQL type is TEXT, so that its values may be long."""
        return self.sql_type == "TEXT"

    def decoded(self, values: Sequence[object]) -> Iterable[object]:
        """Decode all of `values` at once, which is much quicker if all are valid.

        Raises:
            ValueError: a value is one that no writer leaves there.
        """
        if self.kept.issuperset(map(type, values)):
            return values
        if not self.is_repeated:
            return map(self.decode, values)
        found = {value: self.decode(value) for value in set(values)}
        return map(found.__getitem__, values)


def columns_of(kind: type) -> tuple[Column, ...]:
    """The columns of a dataclass, in the order of its fields."""
    hints = hints_of(kind)
    return tuple(_column(field.name, hints[field.name]) for field in fields(kind))


@cache
def hints_of(kind: type) -> Mapping[str, object]:
    """The types of a dataclass's fields, with their marks; to evaluate them takes long."""
    return get_type_hints(kind, include_extras=True)


def unmarked(hint: object) -> object:
    """Return a type without the marks of `Annotated`."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def encode_text(value: object) -> object:
    """A text as SQLite takes it: no longer than sessions hold, and without lone surrogates."""
    if not isinstance(value, str):
        return value
    if len(value) > MAX_TEXT_CHARS:
        value = value[:MAX_TEXT_CHARS] + f"\n[tkdebug: cut at {MAX_TEXT_CHARS >> 20} MiB]\n"
    return value if value.isascii() else _utf8(value)


def storable_ns(time_ns: int | None) -> int | float | None:
    """Return a time (or None) for SQLite: from 2262 on a float, as its 64 bits are exceeded."""
    return time_ns if time_ns is None or time_ns <= _LAST_NS else float(time_ns)


def decode_integer(value: object) -> int:
    """Return SQLite's value as an int; beyond 64 bits it is stored as text, a time as a float."""
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, int):
        raise ValueError(f"got {value!r:.80}, expected a number")
    return value


def decode_text(value: object) -> str:
    """Return `value`, which has to be a str; raise ValueError if it is not."""
    if not isinstance(value, str):
        raise ValueError(f"got {value!r:.80}, expected text")
    return value


def decode_json(value: object) -> object:
    """Parse JSON text, lone surrogates escaped; raise ValueError for anything else."""
    text = decode_text(value)
    try:
        parsed = json.loads(text)
        return _encodable(parsed) if _SURROGATE.search(text) else parsed
    except RecursionError as error:
        raise ValueError("JSON nested too deep") from error


def _column(name: str, hint: object) -> Column:
    plain, marks, optional = _taken_apart(hint)
    if plain in _SCALARS or get_origin(plain) is Literal:
        sql_type, encode = _SCALAR_COLUMNS.get(plain, ("TEXT", encode_text))
        if WIDE in marks:
            sql_type, encode = "", _encode_wide
        elif SHORT in marks:
            encode = _short_text
        kept = {kind for kind in _KEPT if kind is plain} | ({type(None)} if optional else set())
        return Column(name, sql_type, encode, _parser(hint), frozenset(kept))
    is_repeated = REPEATED in marks
    encode, decode = _json_coders(plain, repeated=is_repeated)
    if optional:
        encode, decode = _or_none(encode), _or_none(decode)
    return Column(name, "TEXT", encode, decode, is_repeated=is_repeated)


def _taken_apart(hint: object) -> tuple[object, tuple[object, ...], bool]:
    """Return a type without `Annotated` and None, its marks, and whether None is allowed."""
    marks: tuple[object, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *rest = get_args(hint)
        marks = tuple(rest)
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        if len(kinds) == 1:
            return kinds[0], marks, True
    return hint, marks, False


@lru_cache(maxsize=64)
def data_coders(hint: object) -> tuple[Coder, Coder]:
    """Return the functions from values of a type to data for `json`, and back.

    The second raises `ValueError` on data that the first never makes.
    """
    return _dumper(hint), _parser(hint)


def _json_coders(hint: object, repeated: bool) -> tuple[Coder, Coder]:
    dump, parse = _dumper(hint), _parser(hint)
    empty = "{}" if get_origin(hint) is Mapping else "[]"

    def encode(value: object) -> str:
        text = json.dumps(dump(value))
        return text if len(text) <= MAX_TEXT_CHARS else empty

    def decode(value: object) -> object:
        return parse(decode_json(value))

    if not repeated:
        return encode, decode
    is_mapping = get_origin(hint) is Mapping
    encoder = _cached_mapping_encoder(encode) if is_mapping else _cached_encoder(encode)
    return encoder, _cached_decoder(decode)


def _cached_encoder(encode: Callable[[object], str]) -> Coder:
    encode_tuple = lru_cache(maxsize=256)(encode)

    def cached(value: object) -> object:
        try:
            return encode_tuple(value)
        except TypeError:  # a value that cannot be hashed
            return encode(value)

    return cached


def _cached_mapping_encoder(encode: Callable[[object], str]) -> Coder:
    @lru_cache(maxsize=256)
    def encode_items(items: tuple[tuple[object, object], ...], kinds: tuple[type, ...]) -> str:
        return encode(dict(items))

    def cached(value: object) -> object:
        mapping = _mapping(value)
        # True and 1 are equal, and not the same JSON; so are tuples of them.
        kinds = tuple(map(type, mapping.values()))
        if tuple in kinds or list in kinds:
            return encode(value)
        try:
            return encode_items(tuple(mapping.items()), kinds)
        except TypeError:  # a value that cannot be hashed
            return encode(value)

    return cached


def _cached_decoder(decode: Coder) -> Coder:
    decode_short = lru_cache(maxsize=_CACHED)(decode)

    def cached(value: object) -> object:
        is_short = isinstance(value, str) and len(value) <= MAX_VALUE_CHARS
        return decode_short(value) if is_short else decode(value)

    return cached


def _dumper(hint: object) -> Coder:
    """Return the function from a value of that type to data for `json`."""
    plain, marks, optional = _taken_apart(hint)
    dump = _short_text if SHORT in marks else _dumper_of(plain)
    return _or_none(dump) if optional else dump


def _dumper_of(hint: object) -> Coder:
    if hint is object:
        return _plain
    if isinstance(hint, type) and is_dataclass(hint):
        return _dataclass_dumper(hint)
    arguments = get_args(hint)
    if get_origin(hint) is tuple:
        items = [_dumper(argument) for argument in arguments if argument is not Ellipsis]
        if all(item is _same for item in items):
            return _same
        if arguments[-1] is Ellipsis:
            return lambda value: [items[0](item) for item in _sequence(value)]
        return lambda value: [d(v) for d, v in zip(items, _sequence(value), strict=True)]
    if get_origin(hint) is Mapping:
        dump = _dumper(arguments[1])
        return lambda value: {str(k): dump(v) for k, v in _mapping(value).items()}
    if (hint in _SCALARS and hint is not bytes) or get_origin(hint) is Literal:
        return _same
    raise TypeError(f"{hint}: no record can hold it, use numbers, str, tuple, Mapping, dataclasses")


def _dataclass_dumper(kind: type) -> Coder:
    hints = hints_of(kind)
    names = [field.name for field in fields(kind)]
    values = attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),)
    dumps = [_dumper(hints[name]) for name in names]
    if all(dump is _same for dump in dumps):
        return values
    return lambda value: [dump(item) for dump, item in zip(dumps, values(value), strict=True)]


def _parser(hint: object) -> Coder:
    """Return the function from `json`'s data to a value of that type."""
    plain, marks, optional = _taken_apart(hint)
    parse = decode_text if OPEN in marks else _parser_of(plain)
    return _or_none(parse) if optional else parse


def _parser_of(hint: object) -> Coder:
    if hint is object:
        return _same
    if get_origin(hint) is Literal:
        return _choice_parser(get_args(hint))
    if isinstance(hint, type) and hint in _SCALARS:
        return _SCALARS[hint]
    if isinstance(hint, type) and is_dataclass(hint):
        hints = hints_of(hint)
        parse = _fixed_parser([_parser(hints[field.name]) for field in fields(hint)])
        return lambda value: hint(*parse(value))
    arguments = get_args(hint)
    if get_origin(hint) is tuple and arguments[-1] is Ellipsis:
        return _tuple_parser(arguments[0])
    if get_origin(hint) is tuple:
        return _fixed_parser([_parser(argument) for argument in arguments])
    parse_key, parse_value = map(_parser, arguments)
    return lambda value: {parse_key(k): parse_value(v) for k, v in _parsed_object(value).items()}


def _tuple_parser(hint: object) -> Coder:
    """Return the function to a tuple of any length, which is quicker for plain items."""
    parse_item = _parser(hint)
    exact = frozenset((hint,)) if hint in (int, str) else frozenset()

    def parse(value: object) -> tuple[object, ...]:
        items = _parsed_list(value)
        return tuple(items if exact.issuperset(map(type, items)) else map(parse_item, items))

    return parse


def _fixed_parser(parsers: Sequence[Coder]) -> Callable[[object], tuple[object, ...]]:
    count = len(parsers)

    def parse(value: object) -> tuple[object, ...]:
        items = _parsed_list(value)
        if len(items) != count:
            raise ValueError(f"got {value!r:.80}, expected {count} values")
        return tuple([parser(item) for parser, item in zip(parsers, items, strict=True)])

    return parse


def _choice_parser(choices: tuple[object, ...]) -> Coder:
    def parse(value: object) -> object:
        if value not in choices:
            raise ValueError(f"got {value!r:.80}, expected one of {choices}")
        return value

    return parse


def _or_none(coder: Coder) -> Coder:
    return lambda value: None if value is None else coder(value)


def _same(value: object) -> object:
    return value


def _short_text(value: object) -> object:
    return encode_text(str(value)[:MAX_VALUE_CHARS])


def _encode_wide(value: object) -> object:
    # A wild address or a handle may exceed SQLite's 64 signed bits; its column has no type.
    return str(value) if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63 else value


def _encode_number(value: object) -> object:
    return str(value) if isinstance(value, float) and math.isnan(value) else value  # as SQL: NULL


def _decode_number(value: object) -> float:
    if value == "nan":
        return math.nan
    if not isinstance(value, (int, float)):
        raise ValueError(f"got {value!r:.80}, expected a number")
    return float(value)


def _decode_bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError(f"got {value!r:.80}, expected bytes")
    return value


def _plain(value: object) -> object:
    """A script's own value, bounded; JSON has no number for NaN and infinities."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value[:64]]
    text = value if isinstance(value, str) else repr(value)
    return text[:MAX_VALUE_CHARS]


def _sequence(value: object) -> Sequence[object]:
    if not isinstance(value, (tuple, list)):
        raise TypeError(f"got {value!r:.80}, expected a tuple")
    return value


def _mapping(value: object) -> Mapping[object, object]:
    # `dict` is tested first, as the test for `Mapping` is slow.
    if not isinstance(value, dict) and not isinstance(value, Mapping):
        raise TypeError(f"got {value!r:.80}, expected a mapping")
    return value


def _parsed_list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError(f"got {value!r:.80}, expected a JSON list")
    return value


def _parsed_object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"got {value!r:.80}, expected a JSON object")
    return value


def _utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _encodable(parsed: object) -> object:
    if isinstance(parsed, str):
        return _utf8(parsed)
    if isinstance(parsed, list):
        return [_encodable(item) for item in parsed]
    if isinstance(parsed, dict):
        return {_utf8(name): _encodable(item) for name, item in parsed.items()}
    return parsed


_SCALARS: Mapping[object, Coder] = {
    bytes: _decode_bytes,
    int: decode_integer,
    bool: lambda value: bool(decode_integer(value)),
    float: _decode_number,
    str: decode_text,
}
_KEPT: tuple[type, ...] = (bytes, int, float, str)  # as SQLite gives them
_SCALAR_COLUMNS: Mapping[object, tuple[str, Coder | None]] = {
    bytes: ("BLOB", None),
    int: ("INTEGER", None),
    bool: ("INTEGER", None),
    float: ("REAL", _encode_number),
    str: ("TEXT", encode_text),
}
