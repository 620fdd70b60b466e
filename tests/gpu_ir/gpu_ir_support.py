# ruff: noqa: E501  IR lines are long.
"""Parts that the GPU IR tests share: text in, results or text out, with every check on."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import torch

from tkdebug.compiler.analysis.aliasing import BufferAliases
from tkdebug.compiler.ir import Module, Value
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.ir.printer import print_module
from tkdebug.compiler.passes import Pass, PassManager
from tkdebug.compiler.verifier import verify
from tkdebug.interpreter.launch import run_module
from tkdebug.records.events import Fault

# One warp, 32 elements a row: a lane each. `#row` holds 8 of them side by side.
ALIASES = """
#shared = #ttg.shared_linear<{offset = [[1], [2], [4], [8], [16]]}>
#line = #ttg.linear<{register = [], lane = [[1], [2], [4], [8], [16]], warp = [], block = []}>
#tile = #ttg.shared_linear<{offset = [[0, 1], [0, 2], [0, 4], [0, 8], [1, 0], [2, 0], [4, 0], [8, 0]]}>
#rows = #ttg.linear<{register = [[0, 1], [0, 2], [0, 4]], lane = [[0, 8], [1, 0], [2, 0], [4, 0], [8, 0]], warp = [], block = []}>
"""


def kernel(
    parameters: str, body: str, warps: int = 1, aliases: str = "", **attributes: object
) -> Module:
    """A verified module of one function; `aliases` are layouts beside those that all have."""
    names = [part.split(":")[0].strip().lstrip("%") for part in parameters.split(",") if part]
    given = ", ".join(f'"{name}"' for name in names)
    extra = "".join(f", {name} = {value}" for name, value in attributes.items())
    text = (
        f"{ALIASES}{aliases}\ntt.func @k({parameters}) attributes {{arg_names = [{given}], num_warps = {warps}"
        f"{extra}}} {{\n{dedent(body)}\ntt.return\n}}"
    )
    module = parse_module(text)
    verify(module)
    return module


def run(module: Module, *values: Any, grid: tuple[int, int, int] = (1, 1, 1)) -> list[Fault]:
    """Interpret a module over a grid."""
    return run_module(module, values, grid)


def after(module: Module, *passes: Pass) -> str:
    """The module's text after passes that are verified one by one."""
    PassManager(passes, verify_each=True, print_after=()).run(module)
    text = print_module(module)
    assert print_module(parse_module(text)) == text
    return text


def lanes(dtype: torch.dtype = torch.float32, count: int = 32) -> torch.Tensor:
    """0, 1, 2, …"""
    return torch.arange(count).to(dtype)


def may_alias(aliases: BufferAliases, a: Value, b: Value) -> bool:
    """Whether two buffers may share storage."""
    return any(x.overlaps(y) for x in aliases.regions(a) for y in aliases.regions(b))
