"""The origin of an op: a place in a source file, a call chain of places, or several fused.

Invariant: a location always names at least one file line; there is no unknown location.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tkdebug.errors import Frame


class SourceLocation(NamedTuple):
    """A place in `function`; `caller` is the call site when the function was inlined there.

    A tuple, as one is made for nearly every node of a kernel's source.

    Attributes:
        line: 1-based line in `file`.
        column: 1-based column, 0 when unknown.
    """

    file: str
    line: int
    column: int
    function: str
    caller: SourceLocation | None = None

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The call chain, outermost first, ending with this place."""
        here = (Frame(self.file, self.line, self.function),)
        return here if self.caller is None else self.caller.frames + here

    @property
    def primary(self) -> SourceLocation:
        """The place to show where only one can be shown."""
        return self

    @property
    def sources(self) -> tuple[SourceLocation, ...]:
        """Every source place of this location."""
        return (self,)

    def __str__(self) -> str:
        own = f'"{self.file}":{self.line}:{self.column} in "{self.function}"'
        return own if self.caller is None else f"{own} at {self.caller}"


@dataclass(frozen=True, slots=True)
class FusedLocation:
    """Several places of one op, e.g. after CSE; the first is shown."""

    sources: tuple[SourceLocation, ...]

    @property
    def frames(self) -> tuple[Frame, ...]:
        """Call chain of the first place."""
        return self.sources[0].frames

    @property
    def primary(self) -> SourceLocation:
        """The first place."""
        return self.sources[0]

    def __str__(self) -> str:
        return "fused[" + ", ".join(str(source) for source in self.sources) + "]"


Location = SourceLocation | FusedLocation


def fuse(*locations: Location) -> Location:
    """One location for all of `locations`, each place once, in order."""
    places = tuple(dict.fromkeys([place for loc in locations for place in loc.sources]))
    return places[0] if len(places) == 1 else FusedLocation(places)
