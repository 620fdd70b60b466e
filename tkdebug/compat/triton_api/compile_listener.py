"""`triton.knobs.compilation.listener`: a tool's function that hears of each compile.

Responsible for what upstream hands it: the source, metadata, the stages as files, times. Stages are
written if there is a listener, into a folder for each kernel beside compiled kernels, with source
locations in the form that readers of upstream's dumps know.

Invariant: unknown facts of a kernel are not in its metadata: an interpreted one has no `shared`.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

from tkdebug.compat.finder import upstream_version
from tkdebug.errors import Frame
from tkdebug.records.events import KernelCompiled
from tkdebug.runtime.launch.compiled_kernel import CompiledKernel
from tkdebug.runtime.upstream_hooks import COMPILE_HOOKS

Listener = Callable[..., object]
_MOST_NAME_CHARS = 150
_NS_TO_US = 1000
Frames = Sequence[Frame]
_FILE_LINE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_LOC_LINE = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_ENTRY_LINE = re.compile(r"^\s*// \.globl\s+(\S+)")
_LOCATION = re.compile(r"(!DILocation\(line: )(\d+)")
_SUBPROGRAM_LINE = re.compile(r"(!DISubprogram\(.*?line: )\d+")
_DEBUG_FILE = re.compile(r'!DIFile\(filename: "[^"]*", directory: "[^"]*"\)')


@dataclass(frozen=True)
class CompileTimes:
    """Times of a compile in microseconds.

    Attributes:
        ir_initialization: the time of the front end.
        lowering_stages: the times of the passes of each IR, then of everything that makes the
            machine code.
        store_results: the time to write the stages.
    """

    ir_initialization: int
    lowering_stages: list[tuple[str, int]]
    store_results: int

    @property
    def total_lowering(self) -> int:
        """Time of all stages."""
        return sum(time_us for _, time_us in self.lowering_stages)

    @property
    def total(self) -> int:
        """Time of everything."""
        return self.ir_initialization + self.total_lowering + self.store_results


class CompileListener:
    """A tool's function as it is called after each compile.

    Args:
        function: called with keywords src, metadata, metadata_group, times, cache_hit.
        folder: gives the folder for stages.
    """

    def __init__(self, function: Listener, folder: Callable[[], str]) -> None:
        self.function = function
        self._folder = folder

    def __call__(self, kernel: CompiledKernel, event: KernelCompiled) -> None:
        """Write the stages and call the function."""
        started_ns = time.perf_counter_ns()
        metadata = _metadata(kernel)
        files = _write(kernel, event, metadata, Path(self._folder(), "stages", kernel.hash))
        stored_us = (time.perf_counter_ns() - started_ns) // _NS_TO_US
        self.function(
            src=kernel.src,
            metadata=metadata,
            metadata_group=files,
            times=_times(event, stored_us),
            cache_hit=event.cache_hit,
        )


def current_listener() -> Listener | None:
    """The function that hears of compiles, or None."""
    listener = COMPILE_HOOKS.listener
    return listener.function if isinstance(listener, CompileListener) else None


def set_listener(function: Listener | None, folder: Callable[[], str]) -> None:
    """Call `function` after each compile from now on; None for none."""
    COMPILE_HOOKS.listener = None if function is None else CompileListener(function, folder)


def _metadata(kernel: CompiledKernel) -> dict[str, Any]:
    known = dict(kernel.metadata._asdict())
    if kernel.mode == "interpret":
        del known["shared"]  # an estimate
    return {
        **kernel.src.options.as_dict(),
        **known,
        "backend_name": kernel.metadata.target.backend,
        "triton_version": upstream_version(),
        "mode": kernel.mode,
    }


def _times(event: KernelCompiled, stored_us: int) -> CompileTimes:
    front_end_us = event.passes[0].time_ns // _NS_TO_US if event.passes else 0
    tile_us, gpu_us = (
        sum(one.time_ns for one in event.passes[1:] if one.before.startswith(stage)) // _NS_TO_US
        for stage in ("tile-ir", "gpu-ir")
    )
    stages = [("ttir", tile_us)]
    if "ptx" in event.artifacts:
        rest_us = event.compile_ns // _NS_TO_US - front_end_us - tile_us - gpu_us
        stages += [("ttgir", gpu_us), ("cubin", max(0, rest_us))]
    return CompileTimes(front_end_us, stages, stored_us)


def _write(
    kernel: CompiledKernel, event: KernelCompiled, metadata: Mapping[str, Any], folder: Path
) -> dict[str, str]:
    """Write the stages; the result is their paths by file name."""
    folder.mkdir(parents=True, exist_ok=True)
    name = kernel.src.fn.__name__[:_MOST_NAME_CHARS]
    files: dict[str, bytes] = {}
    for suffix, text in _stages(event).items():
        files[f"{name}.{suffix}"] = text.encode("utf-8", "replace")
    if event.image is not None:
        files[f"{name}.cubin"] = event.image()
    files[f"{name}.json"] = json.dumps(metadata, default=_plain).encode()
    for file, data in files.items():
        (folder / file).write_bytes(data)
    return {file: str(folder / file) for file in files}


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)


def _stages(event: KernelCompiled) -> dict[str, str]:
    """The texts by upstream's suffixes."""
    found = {}
    tile = [stage for stage in event.artifacts if stage.startswith("tile-ir")]
    gpu = [stage for stage in event.artifacts if stage.startswith("gpu-ir")]
    for suffix, stages in (("source", tile[:1]), ("ttir", tile[-1:]), ("ttgir", gpu[-1:])):
        for stage in stages:
            found[suffix] = located_ir(event.artifacts[stage], event.op_lines.get(stage, {}))
    if "llvm-ir" in event.artifacts:
        lines = _lines_by_op(event, gpu[-1:])
        found["llir"] = located_llvm_ir(event.artifacts["llvm-ir"], event.file, event.line, lines)
    if "ptx" in event.artifacts:
        found["ptx"] = located_ptx(event.artifacts["ptx"])
    return found


def _lines_by_op(event: KernelCompiled, stages: Sequence[str]) -> dict[int, int]:
    """Return the line in the kernel's file of each op, by its id."""
    found = {}
    for stage in stages:
        frames_of = event.op_lines.get(stage, {})
        for line, op_id in event.op_ids.get(stage, {}).items():
            here = [frame for frame in frames_of.get(line, ()) if frame.file == event.file]
            if here:
                found[op_id] = here[-1].line
    return found


def located_ir(text: str, frames_of: Mapping[int, Frames]) -> str:
    """IR whose lines end in `loc(#locN)`, with the places of these at its end, as MLIR prints them.

    Args:
        text: the IR.
        frames_of: the call chain (outermost first) of the op on a text line (1-based).
    """
    places: dict[str, int] = {}

    def number(place: str) -> int:
        return places.setdefault(place, len(places) + 1)

    def chain(frames: Frames) -> int:
        at = 0
        for frame in frames:
            here = number(f'loc("{frame.file}":{frame.line}:1)')
            at = here if not at else number(f"loc(callsite(#loc{here} at #loc{at}))")
        return at

    lines = text.splitlines()
    for line, frames in frames_of.items():
        if frames and line <= len(lines):
            lines[line - 1] += f" loc(#loc{chain(frames)})"
    lines += [f"#loc{n} = {place}" for place, n in places.items()]
    return "\n".join(lines) + "\n"


def located_llvm_ir(text: str, file: str, first_line: int, lines: Mapping[int, int]) -> str:
    """LLVM IR whose locations are lines of the kernel's file, as upstream's are.

    Args:
        text: the IR, whose locations are ids of ops.
        file: the file of the kernel.
        first_line: the first line of the kernel, also used for ops of no line in that file.
        lines: the lines by the op's id.
    """

    def line_of(match: re.Match[str]) -> str:
        return f"{match[1]}{lines.get(int(match[2]), first_line)}"

    folder, name = os.path.split(file)
    text = _LOCATION.sub(line_of, text)
    text = _SUBPROGRAM_LINE.sub(rf"\g<1>{first_line}", text)
    return _DEBUG_FILE.sub(lambda _: f'!DIFile(filename: "{name}", directory: "{folder}")', text)


def located_ptx(ptx: str) -> str:
    """PTX with the comments that LLVM writes for upstream: a function's begin and end, files."""
    files = {number: os.path.basename(path) for number, path in _FILE_LINE.findall(ptx)}
    lines = ptx.splitlines()
    for at, line in enumerate(lines):
        entry, place = _ENTRY_LINE.match(line), _LOC_LINE.match(line)
        if entry is not None:
            lines[at] = f"{line} // -- Begin function {entry[1]}"
        elif line == "}":
            lines[at] = "} // -- End function"
        elif place is not None and place[1] in files:
            lines[at] = f"{line.rstrip()} // {files[place[1]]}:{place[2]}:{place[3]}"
    return "\n".join(lines) + "\n"
