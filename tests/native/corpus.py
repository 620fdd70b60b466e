"""Every kernel that is interpreted is also compiled natively: the compile corpus. Needs no GPU.

Inside `Corpus.collecting()` each new specialisation of a launch is compiled for every target, so
that LLVM's verifier and ptxas judge it, and each pass on the way is held to keep its provenance: no
line and no op goes unrecorded. With `check_gpu_ir` the launch is also run as the GPU
passes left it, from the same memory, and must give the same; where it does not, the first pass that
is to blame is looked for.

As a script, `python corpus.py --targets sm_80,sm_90a [--check-gpu-ir] --report FILE SCRIPT …` runs
a script interpreted and writes one JSON line for each compile.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import runpy
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import tkdebug.interpreter.launch
from tkdebug.compiler.ir.parser import parse_module
from tkdebug.compiler.ir.printer import print_module
from tkdebug.compiler.targets import target_of
from tkdebug.errors import UnsupportedError
from tkdebug.interpreter.launch import run_module
from tkdebug.interpreter.memory.host_views import memory_of
from tkdebug.knobs import KNOBS
from tkdebug.runtime.arguments.specialize import alignment_key, runtime_values
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor
from tkdebug.runtime.benchmark.perf_report import Mark
from tkdebug.runtime.compile.compilation import compile_tile_ir
from tkdebug.runtime.compile.debugged_stages import values_for
from tkdebug.runtime.compile.specialization import Specialization
from tkdebug.runtime.launch.interpreted_kernel import InterpretedKernel

_PACKAGE = str(Path(tkdebug.interpreter.launch.__file__).resolve().parents[1])
_LOCAL = re.compile(r"^\s*(?:@!?%\w+ )?(?:ld|st)\.local\b", re.MULTILINE)
_WIDE_LOAD = re.compile(
    r"\bld\.global[\w.:]*\.(?:v4\.[bfsu]32|v2\.[bfsu]64)|\bcp\.async[\w.]*.*, 16[,;]"
)
_LOAD = re.compile(r"\bld\.global|\bcp\.async\.c[ag]\.")
_WIDE_STORE = re.compile(r"\bst\.global[\w.:]*\.(?:v4\.[bfsu]32|v2\.[bfsu]64)")
_STORE = re.compile(r"\bst\.global")
_SHOWN_CHARS = 300


@dataclass
class Row:
    """One kernel for one target.

    Attributes:
        cause: why it failed, with what varies from case to case left out; "" when it did not.
        detail: the whole error.
        where: the test or script that launched it.
        loads: global loads in the PTX, of them `wide_loads` of 16 bytes; stores alike.
    """

    kernel: str
    target: str
    hash: str
    where: str = ""
    cause: str = ""
    detail: str = ""
    seconds: float = 0.0
    registers: int = 0
    spill_bytes: int = 0
    shared_bytes: int = 0
    local_accesses: int = 0
    wgmma: int = 0
    mma: int = 0
    loads: int = 0
    wide_loads: int = 0
    stores: int = 0
    wide_stores: int = 0
    notes: list[str] = field(default_factory=list)


class Corpus:
    """The kernels that were compiled so far.

    Attributes:
        rows: one for each kernel and target.
        where: what is running; put into the rows.
        ptx: PTX by (kernel hash, target), where `keep_ptx` asks for it.
    """

    def __init__(
        self,
        targets: Sequence[str],
        check_gpu_ir: bool = False,
        report: Path | None = None,
        keep_ptx: bool = False,
    ) -> None:
        self.targets = [target_of(name) for name in targets]
        self.check_gpu_ir = check_gpu_ir
        self.report = report
        self.rows: list[Row] = []
        self.where = ""
        self.ptx: dict[tuple[str, str], str] = {}
        self._keep_ptx = keep_ptx
        self._seen: set[object] = set()

    @property
    def failures(self) -> list[Row]:
        """The rows that failed."""
        return [row for row in self.rows if row.cause]

    @contextlib.contextmanager
    def collecting(self) -> Iterator[Corpus]:
        """Compile what is launched inside the `with`."""
        execute = InterpretedKernel._execute

        def spy(
            kernel: InterpretedKernel, grid: Any, values: Any, record: Any, is_reported: bool
        ) -> None:
            src = self._new_specialization(kernel, values)
            if src is None:
                execute(kernel, grid, values, record, is_reported)
                return
            passed = runtime_values(kernel.src.specs, values)
            memory = Memory(passed) if self.check_gpu_ir else None
            execute(kernel, grid, values, record, is_reported)
            if memory is not None:
                memory.note_result()
            self._compile_for_all(src, grid, passed, memory)

        with mock.patch.object(InterpretedKernel, "_execute", spy):
            yield self

    def _new_specialization(self, kernel: InterpretedKernel, values: Any) -> Specialization | None:
        if not self.targets:
            return None
        alignment = alignment_key(kernel.src.fn.params, values)
        quick = (id(kernel), alignment)
        if quick in self._seen:
            return None
        self._seen.add(quick)
        src = replace(kernel.src, alignment=alignment)
        if src.hash in self._seen:
            return None
        self._seen.add(src.hash)
        # The quick key is an id: what it names must live as long as this.
        self._seen.add(kernel)
        return src

    def _compile_for_all(
        self, src: Specialization, grid: Any, values: list[Any], memory: Memory | None
    ) -> None:
        for target in self.targets:
            row = Row(src.fn.__name__, target.name, src.hash, self.where)
            started = time.perf_counter()
            try:
                # Every pass is followed by the verifier and by the check of its provenance.
                with KNOBS.scope(verify_each=True):
                    self._compile(src, target, row, grid, values, memory)
            except Exception as error:
                row.cause, row.detail = cause_of(error), _detail(error)
            row.seconds = round(time.perf_counter() - started, 3)
            self.rows.append(row)
            if self.report is not None:
                with self.report.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(row)) + "\n")

    def _compile(
        self,
        src: Specialization,
        target: Any,
        row: Row,
        grid: Any,
        values: list[Any],
        memory: Memory | None,
    ) -> None:
        from tkdebug.compiler.targets.backend import NativeOptions, Observers
        from tkdebug.compiler.targets.nvptx.compile import compile_module
        from tkdebug.runtime.compile.native_compilation import refuse_options

        refuse_options(src.fn.__name__, src.options, target)
        if src.options.arch is None:
            src = replace(src, options=replace(src.options, arch=target.name))
        module = compile_tile_ir(src).module
        options = NativeOptions(src.options.num_warps, src.options.num_stages, src.options.maxnreg)
        texts: list[tuple[str, str]] = []
        observers = Observers()
        if memory is not None:
            texts.append(("tile-ir", print_module(module, locations=True)))
            observers = Observers(
                lambda name, now: texts.append((name, print_module(now, locations=True)))
            )
        try:
            compiled = compile_module(module, options, target, observers)
        finally:
            # A kernel that cannot be lowered yet has GPU IR all the same.
            if memory is not None and len(texts) > 1:
                _check_passes(texts, grid, values, memory, row)
        if not row.cause:
            self._note_code(compiled, row)

    def _note_code(self, compiled: Any, row: Row) -> None:
        code, ptx = compiled.code, compiled.code.ptx
        row.registers, row.shared_bytes = code.registers, compiled.shared_bytes
        row.spill_bytes = code.spill_store_bytes + code.spill_load_bytes
        row.local_accesses = len(_LOCAL.findall(ptx))
        row.wgmma, row.mma = ptx.count("wgmma.mma_async"), ptx.count("mma.sync")
        row.loads, row.wide_loads = len(_LOAD.findall(ptx)), len(_WIDE_LOAD.findall(ptx))
        row.stores, row.wide_stores = len(_STORE.findall(ptx)), len(_WIDE_STORE.findall(ptx))
        row.notes = [f"{note.code}: {note.message}" for note in code.warnings]
        if self._keep_ptx:
            self.ptx[row.hash, row.target] = ptx


class Memory:
    """The allocations that a launch can reach through its arguments, before and after it."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.tensors = [t for t in map(_tensor_of, values) if t is not None]
        self.before = [_bytes_of(tensor).clone() for tensor in self.tensors]
        self.after: list[torch.Tensor] = []

    def note_result(self) -> None:
        """Take the present values as those that the launch must give."""
        self.after = [_bytes_of(tensor).clone() for tensor in self.tensors]

    @contextlib.contextmanager
    def as_before(self) -> Iterator[None]:
        """Inside the `with` the memory is as before the launch, afterwards as after it."""
        self._put(self.before)
        try:
            yield
        finally:
            self._put(self.after)

    def _put(self, contents: list[torch.Tensor]) -> None:
        for tensor, content in zip(self.tensors, contents, strict=True):
            _bytes_of(tensor).copy_(content)

    def difference(self) -> str:
        """Return the values that differ from those of the launch; "" for none."""
        for index, (tensor, wanted) in enumerate(zip(self.tensors, self.after, strict=True)):
            got = _bytes_of(tensor)
            if torch.equal(got, wanted):
                continue
            size = tensor.element_size()
            whole = got.numel() // size * size
            text = _compare(got[:whole].view(tensor.dtype), wanted[:whole].view(tensor.dtype))
            if text:
                return f"argument {index}: {text}"
        return ""


# What another order of sums, and of their parts, changes at most.
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 5e-2}


def _compare(got: torch.Tensor, wanted: torch.Tensor) -> str:
    tolerance = _TOLERANCE.get(got.dtype)
    if tolerance is None:
        # fp8 has no comparison of its own; its values are those of its bytes.
        whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        kind = whole[got.element_size()]
        different = got.view(kind) != wanted.view(kind)
    else:
        different = ~torch.isclose(got, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
    if not bool(different.any()):
        return ""
    first = int(different.nonzero()[0])
    shown = [float(tensor[first].float()) for tensor in (got, wanted)]
    return f"{int(different.sum())} differ, first at {first}: {shown[0]} instead of {shown[1]}"


def _tensor_of(value: Any) -> torch.Tensor | None:
    value = value.base if isinstance(value, TensorDescriptor) else value
    return value if isinstance(value, torch.Tensor) else None


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    with torch._C.DisableTorchFunction():
        return torch.empty(0, dtype=torch.uint8).set_(memory_of(tensor.untyped_storage()))


class _WrongPass(Exception):
    """A pass changed what a kernel does."""


def _check_passes(
    texts: Sequence[tuple[str, str]], grid: Any, values: list[Any], memory: Memory, row: Row
) -> None:
    """Run the module after the last pass; where it is wrong, find the first wrong pass."""
    problem = _run_text(texts[-1][1], grid, values, memory)
    if not problem or problem == _run_text(texts[0][1], grid, values, memory):
        # A fault that the Tile IR has too is the kernel's own.
        return
    for name, text in texts[1:]:
        problem = _run_text(text, grid, values, memory)
        if problem:
            raise _WrongPass(f"after {name}: {problem}")
    raise _WrongPass(f"after {texts[-1][0]}, once only: {problem}")


def _run_text(text: str, grid: Any, values: list[Any], memory: Memory) -> str:
    """Return the mistakes of a module's run from the memory before the launch; "" for none."""
    try:
        module = parse_module(text)
    except Exception as error:
        return f"not parsed again: {_detail(error)}"
    quiet = io.StringIO()
    with memory.as_before(), contextlib.redirect_stdout(quiet):
        try:
            faults = run_module(module, values_for(module, values), grid, is_reported=False)
        except Exception as error:
            return f"not run: {cause_of(error)}: {_detail(error)}"
        wrong = memory.difference()
    return wrong or "".join(f"{f.kind}: {f.message}" for f in faults[:1] if f.severity == "error")


def cause_of(error: Exception) -> str:
    """An error with what varies from case to case left out, and the place it was raised at."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else ""
    text = re.sub(r"^\S+:\d+: ", "", text)
    text = re.sub(r"native code of \w+", "native code", text)
    text = re.sub(r"tensor<[^>]*(?:>[^>]*)*>|!tt[^ ,]*", "T", text)
    text = re.sub(r"#?%?\b\d[\w.]*|%[\w.]+|0x[0-9a-f]+", "N", text)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _PACKAGE in f.filename]
    at = ""
    if frames and not isinstance(error, UnsupportedError):
        last = frames[-1]
        at = f" [{Path(last.filename).stem}.{last.name}]"
    return f"{type(error).__name__}: {text[:_SHOWN_CHARS]}{at}"


def _detail(error: Exception) -> str:
    notes = " / ".join(getattr(error, "__notes__", ()))
    return f"{error} {notes}"[:2000]


def failure_table(rows: Sequence[Row]) -> str:
    """The failures by cause, the most frequent first, each with an example."""
    failed = [row for row in rows if row.cause]
    lines = [f"{len(rows) - len(failed)} of {len(rows)} compiles succeeded"]
    for cause, count in Counter(row.cause for row in failed).most_common():
        example = next(row for row in failed if row.cause == cause)
        kernels = len({row.kernel for row in failed if row.cause == cause})
        lines.append(f"{count:5} ({kernels} kernels)  {cause}")
        lines.append(f"        e.g. {example.kernel} {example.target} in {example.where}")
    return "\n".join(lines)


def run_script(corpus: Corpus, script: str, *arguments: str, has_benchmarks: bool = True) -> None:
    """Run a script interpreted, as `python SCRIPT ARGUMENTS`; `corpus` compiles what it launches.

    Its own exit status is not looked at. Without `has_benchmarks` the sweeps of `perf_report` are
    left out.
    """
    from tkdebug.compat import install

    corpus.where = Path(script).name
    folder = str(Path(script).resolve().parent)
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(sys, "argv", [script, *arguments]))
        stack.enter_context(mock.patch.object(sys, "path", [folder, *sys.path]))
        stack.enter_context(install("interpret", quick=True, checks=("none",)))
        stack.enter_context(corpus.collecting())
        if not has_benchmarks:
            stack.enter_context(mock.patch.object(Mark, "run", return_value=None))
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as ended:
            print(f"script ended with {ended.code}", file=sys.stderr)


def main() -> int:
    """Run a script; what failed to compile makes the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", default="sm_80,sm_90a")
    parser.add_argument("--check-gpu-ir", action="store_true")
    parser.add_argument("--no-benchmarks", action="store_true", help="skip perf_report's sweeps")
    parser.add_argument("--report", type=Path)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    corpus = Corpus(options.targets.split(","), options.check_gpu_ir, options.report)
    run_script(corpus, options.script, *options.arguments, has_benchmarks=not options.no_benchmarks)
    print(failure_table(corpus.rows), file=sys.stderr)
    return 1 if corpus.failures else 0


if __name__ == "__main__":
    sys.exit(main())
