"""Sites as the text that a kernel carries: JSON of their fields.

The text may come from anybody, also with printed IR. So every value is checked by the type of its
field.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from functools import cache, lru_cache
from types import UnionType
from typing import Any, ClassVar, Final, Protocol, TypeVar, get_args, get_origin, get_type_hints

from tkdebug.errors import IRError

_MAX_CHARS: Final = 1 << 14


class Site(Protocol):
    """A dataclass of numbers, strings, booleans, None, and tuples and dataclasses of these."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tile, () for a scalar."""
        ...


_Site = TypeVar("_Site", bound=Site)


def site_text(site: Site) -> str:
    """`site` as text."""
    return json.dumps(site, separators=(",", ":"), default=_fields)


def _fields(site: Site) -> dict[str, Any]:
    # `asdict` takes ten times as long: it copies their values, too.
    return {name: getattr(site, name) for name in site.__dataclass_fields__}


def read_sites(kind: type[_Site], texts: Iterable[str], attribute: str) -> tuple[_Site, ...]:
    """The sites of a kernel, read from the texts of one of its attributes.

    Args:
        kind: the class of each site.
        texts: results of `site_text`.
        attribute: the attribute of the kernel that has the texts.

    Raises:
        IRError: one of the texts is not the text of a site of that class.
    """
    return tuple(_read_site(kind, text, attribute) for text in texts)


# A compile reads its sites several times.
@lru_cache(maxsize=256)
def _read_site(kind: type[Any], text: str, attribute: str) -> Any:
    try:
        if len(text) > _MAX_CHARS:
            raise ValueError(f"{len(text)} characters")
        site: Site = _read(kind, json.loads(text), "it")
        if min(site.shape, default=1) < 1:
            raise ValueError(f"shape is {site.shape}")
    except (ValueError, RecursionError) as error:
        raise IRError(f"{attribute}: {text!r:.80} is no site: {error}") from error
    return site


def _read(hint: Any, data: object, name: str) -> Any:
    """`data` as a value of the type `hint`, of a field of that name."""
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        if isinstance(data, list):
            if parts[1:] == (...,):
                parts = (parts[0],) * len(data)
            if len(parts) == len(data):
                return tuple(_read(*pair, name) for pair in zip(parts, data, strict=True))
    elif isinstance(hint, type) and is_dataclass(hint):
        types = _types(hint)
        if isinstance(data, dict) and data.keys() == types.keys():
            return hint(**{field: _read(types[field], data[field], field) for field in types})
    elif type(data) in (get_args(hint) if isinstance(hint, UnionType) else (hint,)):
        return data
    raise ValueError(f"{name} is {data!r:.40}")


@cache
def _types(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)
