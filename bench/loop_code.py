"""The machine code of hot loops, ours and upstream Triton's, for each architecture. Needs no GPU.

Two processes (`bench/loop_code_worker.py`) compile the kernels of `bench/loop_kernels.py`, one with
tkdebug and one with upstream's Triton in a Python of its own. Of each cubin's SASS the hot loops
are counted: those that hold tensor-core instructions and no other such loop; where a kernel has
none, the innermost loops that read memory. A loop that the assembler unrolled does more at once:
instructions are compared per tensor-core instruction, else per byte loaded.

    python bench/loop_code.py --upstream-python VENV/bin/python [--targets sm_80,sm_90a]
        [--only matmul] [--markdown bench/RESULTS.md]

Exit status 1 where a loop of ours has more than 1.1 times upstream's instructions, or there are
more spills than upstream has.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sections import replace_section

from tkdebug.linemap.nvidia.cubins import read_kernels
from tkdebug.linemap.nvidia.sass import kind_of, opcode, width_bits
from tkdebug.linemap.nvidia.tools import disassemble

HERE = Path(__file__).resolve().parent
WORKER = HERE / "loop_code_worker.py"
TARGETS = "sm_80,sm_86,sm_89,sm_90a"
MOST = 1.1
TITLE = "# Hot loops, ours and upstream's"

_SECTION = re.compile(r"\s*\.section\s+\.text\.([^,\s]+)")
_LABEL = re.compile(r"^\s*(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;")
_JUMP = re.compile(r"`\((\.L_x_\d+)\)")
_REMARK = re.compile(r"\s*\(\*.*?\*\)")


@dataclass(frozen=True, slots=True)
class Loop:
    """Return the most instructions that one pass through a loop's code executes.

    Attributes:
        instructions: all of them, NOPs left out.
        spills: loads from and stores to local memory.
        copies: cp.async or TMA loads.
        tensor_core: instructions of the tensor cores.
        loaded_bytes: by a thread from global memory into registers.
    """

    instructions: int
    spills: int
    copies: int
    tensor_core: int
    loaded_bytes: int

    @property
    def work(self) -> int:
        """Return the key by which instructions are compared."""
        return self.tensor_core or self.loaded_bytes or 1


@dataclass(frozen=True, slots=True)
class Code:
    """A kernel's machine code: its hot loops in order, spills outside of them included."""

    loops: tuple[Loop, ...]
    spills: int
    registers: int


def read_code(cubin: bytes) -> Code:
    """The kernel of `cubin`, of which there is one; the assembler may have added functions."""
    (kernel,) = (k for k in read_kernels(cubin).kernels.values() if k.threads is not None)
    texts: list[str] = []
    places: dict[str, int] = {}
    is_kernel = False
    for line in disassemble(cubin).splitlines():
        if section := _SECTION.match(line):
            is_kernel = section[1] == kernel.name
        elif not is_kernel:
            continue
        elif label := _LABEL.match(line):
            places[label[1]] = len(texts)
        elif found := _INSTRUCTION.match(line):
            texts.append(_REMARK.sub("", found[1]))
    whole = _loop(texts)
    loops = tuple(_loop(texts[start:end]) for start, end in _hot(texts, _back_edges(texts, places)))
    return Code(loops, whole.spills, kernel.registers or 0)


def _back_edges(texts: Sequence[str], places: dict[str, int]) -> list[tuple[int, int]]:
    """The spans of instructions between a jump back and where it leads."""
    spans: dict[int, int] = {}
    for place, text in enumerate(texts):
        jump = _JUMP.search(text)
        if opcode(text) == "BRA" and jump is not None and places[jump[1]] < place:
            spans[places[jump[1]]] = place + 1
    return sorted(spans.items())


def _hot(texts: Sequence[str], spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    counted = {span: _loop(texts[slice(*span)]) for span in spans}
    worked = [span for span in spans if counted[span].tensor_core]
    worked = worked or [span for span in spans if counted[span].loaded_bytes]
    return [
        span
        for span in worked
        if not any(other != span and _inside(other, span) for other in worked)
    ]


def _inside(span: tuple[int, int], other: tuple[int, int]) -> bool:
    return other[0] <= span[0] and span[1] <= other[1]


def _loop(texts: Sequence[str]) -> Loop:
    kinds = Counter(kind_of(text) for text in texts)
    loaded = sum(width_bits(text) or 0 for text in texts if kind_of(text) == "global-load")
    return Loop(
        sum(opcode(text) != "NOP" for text in texts),
        kinds["local-load"] + kinds["local-store"],
        kinds["shared-copy"],
        kinds["tensor-core"],
        loaded // 8,
    )


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel for a target: its code or why there is none, upstream's and ours."""

    name: str
    target: str
    upstream: Code | str
    ours: Code | str

    @property
    def ratio(self) -> float | None:
        """Our instructions over upstream's for the same work, of the worst loop."""
        if isinstance(self.upstream, str) or isinstance(self.ours, str):
            return None
        pairs = list(zip(self.ours.loops, self.upstream.loops, strict=False))
        if not pairs:
            return None
        return max((a.instructions / a.work) / (b.instructions / b.work) for a, b in pairs)

    @property
    def misses(self) -> bool:
        """Whether a loop is too long, or there are more spills than upstream has."""
        if isinstance(self.upstream, str) or isinstance(self.ours, str):
            return isinstance(self.ours, str) and not isinstance(self.upstream, str)
        more = self.ours.spills > self.upstream.spills or any(
            a.spills > b.spills for a, b in zip(self.ours.loops, self.upstream.loops, strict=False)
        )
        return more or (self.ratio or 0) > MOST


def compile_cases(
    python: str, compiler: str, targets: str, only: str, out: Path
) -> tuple[dict[int, str], dict[str, Code | str]]:
    """The cases' names by number, and the code of each by number and target."""
    out.mkdir(parents=True, exist_ok=True)
    command = [python, WORKER, "--with", compiler, "--targets", targets, "--only", only]
    paths = [str(HERE)] if compiler == "triton" else [str(HERE), str(HERE.parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    subprocess.run([*command, "--out", out], check=True, env=environment)
    made = json.loads((out / "made.json").read_text())
    codes: dict[str, Code | str] = dict(made["errors"])
    for path in out.glob("*.cubin"):
        codes[path.stem] = read_code(path.read_bytes())
    return {int(index): name for index, name in made["names"].items()}, codes


def table(rows: Sequence[Row]) -> str:
    """The rows as a section of RESULTS.md; of several hot loops, the numbers stand side by side."""
    lines = [
        TITLE,
        "",
        "Upstream's / ours, by `python bench/loop_code.py`: one pass through each hot loop; spills",
        "in it and (in the whole kernel); the factor is of instructions for the same work.",
        "",
        "| kernel | target | instructions | factor | spills | copies | tensor core | registers |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [f"| {row.name} | {row.target} | {_cells(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _cells(row: Row) -> str:
    def both(of: str) -> str:
        return " / ".join(
            "-" if isinstance(code, str) else ", ".join(str(getattr(x, of)) for x in code.loops)
            for code in (row.upstream, row.ours)
        )

    def whole(of: str) -> list[str]:
        codes = (row.upstream, row.ours)
        return ["-" if isinstance(code, str) else str(getattr(code, of)) for code in codes]

    reasons = [code for code in (row.upstream, row.ours) if isinstance(code, str)]
    if reasons:
        return f"{both('instructions')}: {reasons[0].splitlines()[0][:60]} | | | | |"
    in_loops = both("spills").split(" / ")
    spills = [f"{a} ({b})" for a, b in zip(in_loops, whole("spills"), strict=True)]
    factor = "-" if row.ratio is None else f"{row.ratio:.2f}{' **miss**' if row.misses else ''}"
    return " | ".join(
        (
            both("instructions"),
            factor,
            " / ".join(spills),
            both("copies"),
            both("tensor_core"),
            " / ".join(whole("registers")),
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--upstream-python", required=True)
    parser.add_argument("--targets", default=TARGETS)
    parser.add_argument("--only", default="")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--keep", type=Path, help="folder for the cubins")
    options = parser.parse_args()
    pythons = {"triton": options.upstream_python, "tkdebug": sys.executable}
    with tempfile.TemporaryDirectory(prefix="loop-code-") as folder, ThreadPoolExecutor() as pool:
        root = options.keep or Path(folder)
        jobs = [
            pool.submit(compile_cases, python, name, options.targets, options.only, root / name)
            for name, python in pythons.items()
        ]
        (names, theirs), (_, ours) = (job.result() for job in jobs)
    rows = [
        Row(name, target, theirs[f"{index}-{target}"], ours[f"{index}-{target}"])
        for index, name in names.items()
        for target in options.targets.split(",")
    ]
    text = table(rows)
    print(text, end="")
    if options.markdown is not None:
        replace_section(options.markdown, text)
    return int(any(row.misses for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
