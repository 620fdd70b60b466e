"""Which instruction LLVM dies of, when its last words do not tell.

Each different call of a module (intrinsics, inline assembly) is compiled in a module of its own;
the one a worker dies of is the one. This costs a few milliseconds a call, only after a death.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tkdebug.compiler.targets.nvptx.codegen.diagnosis import op_of_line
from tkdebug.compiler.targets.nvptx.codegen.worker_process import POOL, WorkerDied

_CALL = re.compile(r"^\s*(?:%[\w.\"-]+ = )?(?:tail |musttail |notail )?call (.*?), !dbg !\d+")
_NAME = re.compile(r"%[\w.-]+|%\"[^\"]*\"")
_CALLEE = re.compile(r'@([\w.$]+|"[^"]*")\(')
_MAX_TRIALS = 200


def deadly_op(llvm_ir: str, header: Mapping[str, object], timeout_s: float) -> int | None:
    """The op of the call that a worker dies of, None where no call alone is deadly.

    Args:
        llvm_ir: the module a worker died of.
        header: the request it died in.
        timeout_s: bound of each try.
    """
    lines = llvm_ir.splitlines()
    declarations = [line for line in lines if line.startswith("declare ")]
    attributes = [line for line in lines if line.startswith("attributes ")]
    for count, (line, trial) in enumerate(_trials(lines, declarations, attributes)):
        if count >= _MAX_TRIALS:
            break
        with POOL.borrow() as worker:
            try:
                worker.ask(header, trial.encode(), timeout_s)
            except WorkerDied:
                return op_of_line(line, llvm_ir)
    return None


def _trials(
    lines: list[str], declarations: list[str], attributes: list[str]
) -> Iterator[tuple[str, str]]:
    """(line of the module, module that holds only that call), each different call once."""
    seen = set()
    for line in lines:
        found = _CALL.match(line)
        if not found:
            continue
        trial = _trial(found[1])
        if trial is None or trial in seen:
            continue
        seen.add(trial)
        callee = _CALLEE.search(found[1])
        needed = [text for text in declarations if callee and f"@{callee[1]}(" in text]
        yield line, "\n".join([*needed, trial, *attributes])


def _trial(call: str) -> str | None:
    """A kernel that makes `call` with its values as parameters, and keeps the result."""
    opening = _argument_list(call)
    if opening is None:
        return None
    start, end = opening
    parameters: list[str] = []
    arguments = []
    for argument in _split(call[start:end]):
        name = _NAME.search(argument)
        if name:
            type_ = argument[: name.start()].strip()
            parameters.append(f"{type_} %p{len(parameters)}")
            argument = parameters[-1]
        arguments.append(argument)
    result = re.split(r" (?:asm|@)", call, maxsplit=1)[0].strip()
    made = f"call {call[:start]}{', '.join(arguments)}{call[end:]}"
    body = f"  {made}" if result == "void" else f"  %r = {made}\n  store {result} %r, ptr %out"
    inner = ", ".join(["ptr %out", *parameters])
    return f"define ptx_kernel void @probe({inner}) {{\n{body}\n  ret void\n}}"


def _argument_list(call: str) -> tuple[int, int] | None:
    """Bounds of what stands between the parentheses of the call's arguments."""
    end = call.rfind(")")
    depth = 0
    for index in range(end, -1, -1):
        depth += {")": 1, "(": -1}.get(call[index], 0)
        if depth == 0:
            return index + 1, end
    return None


def _split(arguments: str) -> list[str]:
    """Split at the commas that are in no brackets."""
    parts, depth, start = [], 0, 0
    for index, character in enumerate(arguments):
        if character in "([{<":
            depth += 1
        elif character in ")]}>":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(arguments[start:index].strip())
            start = index + 1
    last = arguments[start:].strip()
    return [*parts, last] if last else parts
