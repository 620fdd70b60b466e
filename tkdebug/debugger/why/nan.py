"""Where a NaN was born; without an index, the first NaN of a tensor or variable is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from tkdebug.debugger.elements import argument_named
from tkdebug.debugger.values import Constant, Pointers, Tile
from tkdebug.debugger.why.answers import Why, why
from tkdebug.debugger.why.slice_lines import is_nan
from tkdebug.errors import UsageError

if TYPE_CHECKING:
    from tkdebug.debugger.inspection import Inspection


def why_nan(inspection: Inspection, text: str, frame: int = 0) -> Why:
    """The slice of an element that is NaN, of NaN alone, back to where it was born.

    Args:
        inspection: of the stop.
        text: an element as `why` takes it, or the bare name of a tensor argument or of a tile: then
            its first NaN, of a tile in the first selected program that has one.
        frame: whose variables are meant, 0 for the innermost.

    Raises:
        UsageError: there is no such element, or no NaN.
    """
    name = text.strip()
    if not name.isidentifier():
        return why(inspection, text, frame, only_nan=True)
    found = _found(inspection, name, frame)
    if isinstance(found, Tile):
        row, *index = _first(found.data, name)
        program = inspection.programs[row]
        return why(inspection, _element(name, index), frame, only_nan=True, program=program)
    if isinstance(found, Pointers) and found.is_whole_tensor and found.name is not None:
        assert found.tensor is not None
        name, found = found.name, found.tensor
    if isinstance(found, Constant):
        found = found.value  # of the script
    if isinstance(found, Tensor):
        return why(inspection, _element(name, _first(found, name)), frame, only_nan=True)
    raise UsageError(f"why-nan: `{name}` is neither a tensor argument nor a tile of numbers")


def _found(inspection: Inspection, name: str, frame: int) -> object:
    try:
        return inspection.ask(name, frame)
    except UsageError:
        argument = argument_named(name, inspection.launch.arguments)
        if argument is None:
            raise
        return inspection.launch.arguments[argument]


def _first(data: Tensor, name: str) -> list[int]:
    places = is_nan(data).nonzero()
    if not len(places):
        raise UsageError(f"why-nan: `{name}` has no NaN in the selected programs that are here")
    first: list[int] = places[0].tolist()
    return first


def _element(name: str, index: list[int]) -> str:
    return f"{name}[{', '.join(map(str, index))}]" if index else name
