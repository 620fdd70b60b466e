"""Diagnoses of messages from LLVM, ptxas and a dying worker, as errors that name the op.

The lowering writes each op's id as the line number of its instructions' `!dbg`, so a place in the
LLVM text, or in the PTX, is an op. Invariant: an op id given here is one that is in the text;
where nothing points to one, none is given.

Where a worker's last words name no instruction, each different call of the module (intrinsics,
inline assembly) is compiled in a module of its own; a call with which a worker dies is the cause.
This costs a few milliseconds a call, only after a death.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tkdebug.compiler.targets.nvptx.codegen.worker_process import POOL, WorkerDied
from tkdebug.errors import CompileError, Frame
from tkdebug.process.named_files import source_line

Locations = Mapping[int, tuple[Frame, ...]]

_MAX_DETAIL_CHARS = 600
_DBG_USE = re.compile(r"!dbg !(\d+)")
_LLVM_PLACE = re.compile(r"<string>:(\d+):\d+: error: (.*)")
_PTXAS_PLACE = re.compile(r"line (\d+); (?:error|fatal)\s*: (.*)")
_PTXAS_FATAL = re.compile(r"fatal\s*: (.* line (\d+) .*)")
_CONSTRAINT = re.compile(r"for constraint '(\w+)'")
_DEBUG_FILE = re.compile(r'!DIFile\(filename: "([^"]+)"')
_EXTERN = re.compile(r"^\.extern \.func\s*(?:\([^)]*\)\s*)?([^\s(]+)", re.MULTILINE)
_RESULT = re.compile(r"%[\w.]+ = \w+ ")
_NAMED_FUNCTION = re.compile(r"@?\"?(llvm\.[\w.]+|__nv_\w+)")
# Functions that the driver or ptxas provides.
_PROVIDED = frozenset({"vprintf", "__assertfail", "malloc", "free"})
_NOISE = ("PLEASE submit a bug report", "Stack dump:", "Running pass", "Program arguments")


class CodegenError(CompileError):
    """LLVM or ptxas refuses a kernel, or died of it.

    Attributes:
        stage: parse, libdevice, optimise, emit, assemble or worker.
        detail: the tool's message, shortened.
        op_id: id of the op that the message points to, None if it points to none.
    """

    def __init__(
        self,
        kernel: str,
        stage: str,
        detail: str,
        op_id: int | None = None,
        locations: Locations | None = None,
    ) -> None:
        self.stage = stage
        self.detail = detail
        self.op_id = op_id
        frames = (locations or {}).get(op_id, ()) if op_id is not None else ()
        where = f" at op {op_id}" if op_id is not None and not frames else ""
        super().__init__(
            f"native code of {kernel}, stage {stage}{where}: {detail}",
            frames,
            source_line=_source_line(frames),
            kernel=kernel,
        )


def _source_line(frames: tuple[Frame, ...]) -> str | None:
    if not frames:
        return None

    return source_line(frames[-1].file, frames[-1].line).rstrip() or None


def op_at_llvm_line(llvm_ir: str, line: int) -> int | None:
    """Id of the op of the instruction on `line` (1-based) of the text, or None without one."""
    lines = llvm_ir.splitlines()
    return op_of_line(lines[line - 1], llvm_ir) if 0 < line <= len(lines) else None


def op_of_text(llvm_ir: str, needle: str) -> int | None:
    """Id of the op of the first instruction whose text holds `needle`, or None without one."""
    for line in llvm_ir.splitlines():
        if needle in line and not line.lstrip().startswith(("declare ", "define ", "!")):
            return op_of_line(line, llvm_ir)
    return None


def op_of_line(line: str, llvm_ir: str) -> int | None:
    """Id of the op of an instruction, a line of the module's text, or None without one."""
    use = _DBG_USE.search(line)
    if use is None:
        return None
    found = re.search(
        rf"^!{use[1]} = (?:distinct )?!DILocation\(line: (\d+)", llvm_ir, re.MULTILINE
    )
    return int(found[1]) if found else None


def llvm_complaint(message: str, log: str, llvm_ir: str) -> tuple[str, int | None]:
    """Text of an error of LLVM's parser, and the id of its op, or None."""
    place = _LLVM_PLACE.search(log)
    if place is None:
        return shorten(message), None
    line = int(place[1])
    text = llvm_ir.splitlines()[line - 1].strip() if line <= llvm_ir.count("\n") + 1 else ""
    return shorten(f"{place[2]}: {text}"), op_at_llvm_line(llvm_ir, line)


def death_complaint(how: str, stderr: str, llvm_ir: str) -> tuple[str, int | None]:
    """Text of a worker's death, and the id of its op if its last output points to one."""
    lines = [line for line in stderr.splitlines() if line.strip() and not _is_noise(line)]
    if any(line.startswith("Traceback") for line in lines):
        lines = lines[-1:]
    said = "; ".join(line.strip() for line in lines[:4])
    detail = shorten(f"{said} ({how})" if said else f"the compiler process died: {how}")
    for line in lines:
        op_id = _op_in_words(line, llvm_ir)
        if op_id is not None:
            return detail, op_id
    return detail, None


def _op_in_words(line: str, llvm_ir: str) -> int | None:
    """Id of the op that a line of LLVM's output points to by a place, instruction or name."""
    file = _DEBUG_FILE.search(llvm_ir)
    if file and (place := re.search(rf"{re.escape(file[1])}:(\d+):\d+", line)):
        return int(place[1])
    if constraint := _CONSTRAINT.search(line):
        pattern = re.compile(rf'asm .*"[^"]*={constraint[1]}|asm .*"[^"]*,{constraint[1]}[,"]')
        return next(
            (op_of_line(t, llvm_ir) for t in llvm_ir.splitlines() if pattern.search(t)), None
        )
    text = line.strip().split(", !dbg")[0]
    op_id = op_of_text(llvm_ir, text) if len(text) > 8 else None
    if op_id is None and (made := _RESULT.match(text)):  # constants are printed in another form
        op_id = op_of_text(llvm_ir, made[0])
    if op_id is not None:
        return op_id
    names = _NAMED_FUNCTION.findall(line)
    return next(filter(None, (op_of_text(llvm_ir, f"@{name}(") for name in names)), None)


def _is_noise(line: str) -> bool:
    return line.lstrip().startswith(_NOISE) or re.match(r"\s*#?\d+\.?\s", line) is not None


def ptxas_complaint(log: str, ptx: str) -> tuple[str, int | None]:
    """Text of ptxas's first error, with the PTX line it means, and that line's number or None."""
    place = _PTXAS_PLACE.search(log)
    if place is None:
        fatal = _PTXAS_FATAL.search(log)
        if fatal is None:
            return shorten(log.strip() or "no log"), None
        return shorten(f"ptxas: {fatal[1]}"), int(fatal[2])
    number = int(place[1])
    lines = ptx.splitlines()
    text = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return shorten(f"ptxas: {place[2]} (PTX line {number}: {text})"), number


def unknown_functions(ptx: str) -> list[str]:
    """Functions that the PTX calls and nothing defines, such as misspelt intrinsics."""
    return [name for name in _EXTERN.findall(ptx) if name not in _PROVIDED]


def shorten(text: str) -> str:
    """Cut a text to the length of an error message."""
    if len(text) <= _MAX_DETAIL_CHARS:
        return text
    return text[: _MAX_DETAIL_CHARS - 2] + " …"


_CALL = re.compile(r"^\s*(?:%[\w.\"-]+ = )?(?:tail |musttail |notail )?call (.*?), !dbg !\d+")
_VALUE_NAME = re.compile(r"%[\w.-]+|%\"[^\"]*\"")
_CALLEE = re.compile(r'@([\w.$]+|"[^"]*")\(')
_MAX_TRIALS = 200


def deadly_op(llvm_ir: str, header: Mapping[str, object], timeout_s: float) -> int | None:
    """The op of the call that a worker dies of, None if no call alone is deadly.

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
    """Yield (line of a call, module with that call alone) for each different call."""
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
    """A kernel that makes `call` on parameters and keeps its result; None if not parsable."""
    opening = _argument_list(call)
    if opening is None:
        return None
    start, end = opening
    parameters: list[str] = []
    arguments = []
    for argument in _split(call[start:end]):
        name = _VALUE_NAME.search(argument)
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
    """Bounds of the text between the parentheses of a call's arguments, or None without them."""
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
