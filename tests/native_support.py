"""Parts that tests of code generation share: skips that name what is missing; nvdisasm's text."""

from __future__ import annotations

import re
from importlib.util import find_spec

import pytest

from tkdebug.compiler.targets.nvptx.codegen.llvm_stage import find_libdevice
from tkdebug.linemap.nvidia.tools import find_nvdisasm


def _nvjitlink_problem() -> str:
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return "cuda-bindings is not installed"
    from cuda.bindings import nvjitlink

    try:
        nvjitlink.version()
    except Exception as error:
        return f"nvJitLink cannot be loaded: {error}"
    return ""


def _problem() -> str:
    return "llvmlite is not installed" if find_spec("llvmlite") is None else _nvjitlink_problem()


needs_codegen = pytest.mark.skipif(bool(_problem()), reason=_problem() or "-")
needs_libdevice = pytest.mark.skipif(find_libdevice() is None, reason="libdevice is not installed")
needs_nvdisasm = pytest.mark.skipif(find_nvdisasm() is None, reason="nvdisasm is not installed")

_SECTION = re.compile(r"\s*\.section\s+\.text\.([^,]+)")
_PLACE = re.compile(r'\s*//## File "(.*?)", line (\d+)(?: inlined at "(.*?)", line (\d+))?')
_INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;")

Place = tuple[str, int]


def instructions(sass: str) -> list[str]:
    """The instructions of nvdisasm's text, without the padding after the last."""
    texts = [found[2] for line in sass.splitlines() if (found := _INSTRUCTION.match(line))]
    return [text for text in texts if text != "NOP"]


def places(sass: str) -> dict[tuple[str, int], Place | None]:
    """(function, address) -> the innermost place that nvdisasm's -g, or -gp, prints for it."""
    result: dict[tuple[str, int], Place | None] = {}
    function, place = "", None
    for line in sass.splitlines():
        if section := _SECTION.match(line):
            function, place = section[1], None
        elif named := _PLACE.match(line):
            place = (named[1], int(named[2]))
        elif instruction := _INSTRUCTION.match(line):
            result[function, int(instruction[1], 16)] = place
    return result
