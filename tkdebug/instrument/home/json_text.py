"""The model as JSON, and its JSON Schema; both follow from the records' types.

Records are objects, except for named tuples, which are lists of their fields: there are many of
them. What is None, empty or "" is left out.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tkdebug.instrument.home.records import RunModel


def plain(value: object) -> object:
    """Return a value of the model as dicts, lists and scalars that JSON can hold."""
    if is_dataclass(value) and not isinstance(value, type):
        items = ((name, plain(getattr(value, name))) for name in _names(type(value)))
        return {name: item for name, item in items if item not in (None, "", [], {})}
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return _number(value)
    if value is None or isinstance(value, (str, int)):
        return value
    return repr(value)


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _number(value: float) -> float | int | str:
    """Return the number rounded to six digits, whole ones unrounded; a non-finite one as text."""
    if not math.isfinite(value):
        return str(value)
    if value.is_integer() and abs(value) < 1 << 53:
        return int(value)
    return float(f"{value:.6g}")


def schema() -> dict[str, object]:
    """Return the JSON Schema of the model."""
    definitions: dict[str, object] = {}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tkdebug: the model of a run",
        **_schema_of(RunModel, definitions),
        "$defs": definitions,
    }


def _schema_of(hint: Any, definitions: dict[str, object]) -> dict[str, object]:
    origin, arguments = get_origin(hint), get_args(hint)
    if hasattr(hint, "__metadata__"):  # Annotated
        return _schema_of(arguments[0], definitions)
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema_of(one, definitions) for one in arguments]}
    if origin is Literal:
        return {"type": "string"}  # further words may come
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _schema_of(arguments[1], definitions)}
    if origin is tuple and arguments[-1] is Ellipsis:
        return {"type": "array", "items": _schema_of(arguments[0], definitions)}
    if origin is tuple:
        return _row([_schema_of(one, definitions) for one in arguments])
    if isinstance(hint, type) and (is_dataclass(hint) or hasattr(hint, "_fields")):
        return _record(hint, definitions)
    return dict(_SCALARS.get(hint, {}))


def _record(kind: type, definitions: dict[str, object]) -> dict[str, object]:
    if kind.__name__ not in definitions:
        definitions[kind.__name__] = {}  # records may hold their like
        hints = get_type_hints(kind, include_extras=True)
        parts = {name: _schema_of(hint, definitions) for name, hint in hints.items()}
        definitions[kind.__name__] = (
            {"type": "object", "properties": parts}
            if is_dataclass(kind)
            else {**_row(list(parts.values())), "description": ", ".join(parts)}
        )
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _row(items: list[dict[str, object]]) -> dict[str, object]:
    return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}


_SCALARS: Mapping[object, Mapping[str, object]] = {
    # Numbers that JSON lacks are their names.
    float: {"type": ["number", "string"]},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    str: {"type": "string"},
    type(None): {"type": "null"},
}
