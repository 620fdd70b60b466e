"""Explains a kernel that needs more than the device has: its line, and which number to lower.

`num_stages` is never among them: loops get no more buffers than there is room for, so what does
not fit is needed with one stage, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from tkdebug.errors import shown_path
from tkdebug.runtime.compile.specialization import Specialization
from tkdebug.runtime.errors import OutOfResources

# A constant below it is a count or a flag rather than the extent of a tile.
_LEAST_BLOCK = 16
_MAX_BLOCKS = 6


def locate(error: OutOfResources, src: Specialization) -> None:
    """Give `error` the kernel's line, and what to lower of what it was compiled with."""
    source = src.fn.kernel_source
    line = source.definition.lineno
    error.place = f"{shown_path(source.file)}:{line}"
    error.source_line = (source.line(line) or "").strip()
    lower = " or ".join(_lowerable(error.name, src))
    if lower:
        error.advice = f"lower {lower}"


def _lowerable(resource: str, src: Specialization) -> Iterator[str]:
    options = src.options
    if resource in ("threads", "registers") and options.num_warps > 1:
        yield f"num_warps={options.num_warps}"
    if resource == "threads":
        return
    if resource == "registers":
        yield "maxnreg" if options.maxnreg is None else f"maxnreg={options.maxnreg}"
    blocks = [
        f"{name}={value}"
        for name, value in src.constants.items()
        if type(value) is int and value >= _LEAST_BLOCK and value & (value - 1) == 0
    ]
    yield f"the blocks ({', '.join(blocks[:_MAX_BLOCKS])})" if blocks else "the blocks"
