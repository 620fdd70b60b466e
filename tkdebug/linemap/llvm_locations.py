"""Which op each line of our LLVM IR text is of: its `!dbg` names a DILocation, whose line is it."""

from __future__ import annotations

import re

_LOCATION = re.compile(r"^!(\d+) = (?:distinct )?!DILocation\(line: (\d+)", re.MULTILINE)
_USE = re.compile(r", !dbg !(\d+)\s*$")


def llvm_ops(llvm_ir: str) -> dict[int, int]:
    """Text line (1-based) -> op id, for each instruction of LLVM IR that tkdebug lowered."""
    ops = {number: int(line) for number, line in _LOCATION.findall(llvm_ir)}
    return {
        number: ops[used[1]]
        for number, text in enumerate(llvm_ir.splitlines(), start=1)
        if (used := _USE.search(text)) and used[1] in ops
    }
