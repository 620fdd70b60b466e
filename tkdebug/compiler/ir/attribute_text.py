"""Attributes and locations as text; `attribute_parser` reads it."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping

from tkdebug.compiler.ir.core import Attribute
from tkdebug.compiler.ir.layout_text import LayoutText, layout_text
from tkdebug.compiler.ir.location import Location, SourceLocation
from tkdebug.compiler.ir.types import Type, type_text
from tkdebug.compiler.layouts.linear import LinearLayout

_BARE_NAME = re.compile(r"[A-Za-z_][\w$]*(?:\.[\w$]+)*", re.ASCII)
_CANONICAL_NAN = struct.pack(">d", math.nan)


def is_bare_name(name: str) -> bool:
    """Whether text has `name` without quotes."""
    return _BARE_NAME.fullmatch(name) is not None


def attribute_text(value: Attribute | Type, layout: LayoutText = layout_text) -> str:
    """An attribute value as text, layouts as `layout` writes them."""
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _float_text(value)
        case str():
            return json.dumps(value)
        case LinearLayout():
            return layout(value)
        case tuple():
            return "[" + ", ".join(attribute_text(item, layout) for item in value) + "]"
        case _:
            return type_text(value, layout)


def _float_text(value: float) -> str:
    if math.isnan(value):
        bits = struct.pack(">d", value)
        return "nan" if bits == _CANONICAL_NAN else f"nan(0x{bits.hex()})"
    return repr(value)


def attributes_text(attributes: Mapping[str, Attribute], layout: LayoutText = layout_text) -> str:
    """` {name = value, …}`, or nothing when there are none."""
    if not attributes:
        return ""
    items = (
        f"{name if is_bare_name(name) else json.dumps(name)} = {attribute_text(value, layout)}"
        for name, value in attributes.items()
    )
    return " {" + ", ".join(items) + "}"


def location_text(location: Location) -> str:
    """What stands inside `loc(...)`."""
    places = [_place_text(place) for place in location.sources]
    if isinstance(location, SourceLocation):
        return places[0]
    return "fused[" + ", ".join(places) + "]"


def _place_text(place: SourceLocation | None) -> str:
    chain = []
    while place is not None:
        file, function = json.dumps(place.file), json.dumps(place.function)
        chain.append(f"{file}:{place.line}:{place.column} in {function}")
        place = place.caller
    return " at ".join(chain)
