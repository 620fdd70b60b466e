"""Records of watched values: a summary or the whole tile, and the difference of two values.

Beside them are the records of plugins' measurements of kernels, by source line.
"""

from __future__ import annotations

import array
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from tkdebug.errors import Frame
from tkdebug.records.storage import REPEATED, SHORT, stored

_FP64 = "d"


@stored("watched_values", indices=("launch_id",))
@dataclass(frozen=True, slots=True)
class WatchedValue:
    """A watched value in one program at one time.

    Numbers are fp64, in which larger integers are rounded.

    Attributes:
        watch: the watch as it was asked for.
        name: the name of the variable.
        type: the type in the language's words: `fp32[64, 64]`.
        frames: call chain of the line, outermost first.
        launch_id: the launch's number in its process.
        program_id: (x, y, z).
        iteration: the number of earlier visits of the program.
        shape: the shape of the tile, () for a number.
        nan: elements that are NaN.
        inf: elements that are infinite.
        zeros: elements that are 0.
        minimum: the minimum of elements that are no NaN; NaN if there are none, as `maximum`.
        mean: the mean of the finite elements; NaN if there are none.
        histogram: finite elements other than 0: (e, how many) for magnitudes from 2**e up to 2**(e
            + 1); the first and last possible e, -32 and 31, include all beyond, too.
        tile: the elements in row-major order as fp64, packed by `packed`; empty if the summary
            alone was asked for.
    """

    watch: Annotated[str, SHORT]
    kernel: str
    name: str
    type: str
    frames: Annotated[tuple[Frame, ...], REPEATED]
    launch_id: int
    program_id: tuple[int, int, int]
    iteration: int
    shape: Annotated[tuple[int, ...], REPEATED]
    nan: int
    inf: int
    zeros: int
    minimum: float
    maximum: float
    mean: float
    histogram: tuple[tuple[int, int], ...]
    tile: bytes = b""

    @property
    def elements(self) -> int:
        """The number of the tile's elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def line(self) -> int:
        """The line in the source, 1-based."""
        return self.frames[-1].line

    @property
    def order(self) -> tuple[int, ...]:
        """A key that orders values by launch, program and time."""
        x, y, z = self.program_id
        return self.launch_id, z, y, x, self.line, self.iteration

    def values(self) -> tuple[float, ...]:
        """The elements in row-major order; () if they were not kept."""
        return unpacked(self.tile, self.elements) if self.tile else ()


@stored("watch_counts")
@dataclass(frozen=True, slots=True)
class WatchCount:
    """The number of values that a watch had in a launch.

    Attributes:
        seen: values that were to be kept.
        kept: the number of values for which there was room.
    """

    watch: Annotated[str, SHORT]
    kernel: str
    launch_id: int
    seen: int
    kept: int


def packed(values: Iterable[float]) -> bytes:
    """Numbers as `WatchedValue.tile` keeps them."""
    return zlib.compress(array.array(_FP64, values).tobytes(), 1)


def packed_bytes(data: bytes) -> bytes:
    """Pack fp64 numbers that are in the machine's order of bytes."""
    return zlib.compress(data, 1)


def unpacked(tile: bytes, elements: int) -> tuple[float, ...]:
    """Return the packed numbers.

    Raises:
        ValueError: `tile` does not hold that many numbers.
    """
    reader = zlib.decompressobj()
    try:
        data = reader.decompress(tile, 8 * elements)
    except zlib.error as error:
        raise ValueError(f"a watched tile: {error}") from error
    if len(data) != 8 * elements or reader.unconsumed_tail:
        raise ValueError(f"a watched tile of other than {elements} elements")
    return tuple(array.array(_FP64, data))


def number_text(value: float, type_: str) -> str:
    """Return a value's minimum, maximum or element as text, in the form of its type."""
    is_exact = abs(value) < 1 << 53 and value == int(value)
    return str(int(value)) if is_exact and not type_.startswith(("fp", "bf")) else f"{value:.6g}"


def summary_text(value: WatchedValue) -> str:
    """A value's summary in one line."""
    if not value.shape:
        return number_text(value.minimum, value.type)
    numbers = (value.minimum, value.maximum)
    least, most = (number_text(number, value.type) for number in numbers)
    parts = [f"min {least}", f"max {most}", f"mean {value.mean:.6g}"]
    for count, what in ((value.nan, "NaN"), (value.inf, "Inf")):
        if count:
            parts.append(f"{count:,} {what}")
    if value.zeros:
        parts.append(f"{value.zeros:,} zero" + ("s" if value.zeros > 1 else ""))
    return ", ".join(parts)


def program_text(program: Sequence[int]) -> str:
    """A program as one writes it: `3` in a grid of one axis."""
    x, y, z = program
    return f"({x}, {y}, {z})" if y or z else str(x)


# The value of the last bit of each element type's fraction, for numbers from 1 to 2.
_LAST_PLACES = {
    **{"fp64": 2.0**-52, "fp32": 2.0**-23, "fp16": 2.0**-10, "bf16": 2.0**-7},
    **{"fp8e4nv": 2.0**-3, "fp8e4b8": 2.0**-3, "fp8e5": 2.0**-2, "fp8e5b16": 2.0**-2},
}
_FEW = 4


def same_value(a: WatchedValue, b: WatchedValue) -> bool:
    """Whether two recorded values are the same, NaN equal to itself."""
    counts = (a.nan, a.inf, a.zeros, a.histogram) == (b.nan, b.inf, b.zeros, b.histogram)
    # Texts, so that NaN is equal to itself.
    return counts and [*map(repr, _numbers(a))] == [*map(repr, _numbers(b))] and a.tile == b.tile


def difference(a: WatchedValue, b: WatchedValue) -> float:
    """The largest difference of two values, over the largest magnitude.

    It is the difference of minimum, maximum and mean, and of the elements if both have them;
    infinite if one has NaNs or infinities that the other has not.
    """
    if (a.nan, a.inf) != (b.nan, b.inf):
        return math.inf
    pairs = list(zip(_numbers(a), _numbers(b), strict=True))
    if a.tile and b.tile and a.shape == b.shape:
        pairs += zip(a.values(), b.values(), strict=True)
    finite = [pair for pair in pairs if all(map(math.isfinite, pair))]
    largest = max((abs(number) for pair in finite for number in pair), default=0.0)
    return max((abs(x - y) for x, y in finite), default=0.0) / largest if largest else 0.0


def is_rounding(a: WatchedValue, b: WatchedValue) -> bool:
    """Whether two values of floats differ by a few units in the last place of the largest."""
    last_place = _LAST_PLACES.get(a.type.partition("[")[0])
    return last_place is not None and difference(a, b) <= _FEW * last_place


def _numbers(value: WatchedValue) -> Iterator[float]:
    yield from (value.minimum, value.maximum, value.mean)


@stored("instrumentation", indices=("plugin",))
@dataclass(frozen=True, slots=True)
class Instrumented:
    """Measurements of an op in one launch, by a plugin.

    Attributes:
        plugin: the entry point's name.
        op: name of the Tile IR's op.
        frames: call chain of its line, outermost first.
        seen: the number of times that the op ran in the requested programs.
        measured: the number of times that it was measured; there was no room for the rest.
        totals: the sums of the plugin's numbers, by the fields of its record.
    """

    plugin: Annotated[str, SHORT]
    kernel: str
    op: str
    frames: Annotated[tuple[Frame, ...], REPEATED]
    launch_id: int
    seen: int
    measured: int
    totals: Mapping[str, float]
