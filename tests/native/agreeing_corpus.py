"""Every kernel that is interpreted is also launched natively, from the same memory, and compared.

`pytest -p agreeing_corpus --agree-report FILE …` does so for what any test interprets (with this
folder on PYTHONPATH), `python agreeing_corpus.py --agree-report FILE SCRIPT …` for a script. One
JSON line for each launch. Needs an NVIDIA GPU.

Results must be equal to the bit. A difference is let through only where an op of the kernel is the
reason for it, and then only as far as `TOLERANCES` says.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import runpy
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

import tkdebug
import tkdebug.interpreter.launch
from tkdebug.compiler.dialects import arith
from tkdebug.compiler.ir import Module, PointerType
from tkdebug.compiler.ir.types import element_of
from tkdebug.interpreter.memory.host_views import memory_of
from tkdebug.interpreter.scheduler import spin_loops
from tkdebug.records.events import Fault
from tkdebug.runtime.arguments.specialize import alignment_key, runtime_values
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor
from tkdebug.runtime.benchmark.perf_report import Mark
from tkdebug.runtime.launch.interpreted_kernel import InterpretedKernel

sys.path.append(str(Path(__file__).resolve().parents[1] / "interpreter"))
from reference import Reference

Run = Callable[[InterpretedKernel, Any, tuple[Any, ...]], None]

# Relative differences. fp32: approximations of some 2 ulp (2.4e-7) and a few of them in a row;
# halves: what differs by that in fp32 may round to the next number.
TOLERANCES = {
    torch.float64: 1e-13,
    torch.float32: 1e-5,
    torch.float16: 2.0**-10,
    torch.bfloat16: 2.0**-7,
}
FLOATS = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
# Their order of additions is the layout's: a sum near 0 is off by as much as one that is not.
SUMS = frozenset(("tt.reduce", "tt.scan", "tt.dot", "tt.dot_scaled", "tt.atomic_rmw"))
# div.full, ex2.approx, sqrt.approx and libdevice's against torch's.
APPROXIMATIONS = frozenset(
    f"math.{name}" for name in ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "erf")
) | {"arith.divf", "tt.extern_elementwise"}
# A product and a sum become one fma, rounded once.
CONTRACTED = frozenset(("arith.addf", "arith.subf"))

# Kernels whose result is any of several, by name.
UNDEFINED = {
    "stored_at_one_place": "lanes store different values at one place; which stays is undefined",
    "stored_repeated": "lanes store different values at one place; which stays is undefined",
}
ORDER = "lanes or programs access the same places; their order is undefined"
DIVISION = "it divides integers by zero"
_ADDRESSES = frozenset(("tt.int_to_ptr", "tt.ptr_to_int"))
_ATOMICS = frozenset(("tt.atomic_rmw", "tt.atomic_cas"))
_MACHINE = ("nvvm.read", "tt.clock", "tt.globaltimer")


@dataclass
class Row:
    """One launch.

    Attributes:
        result: "equal", "close", "not run" or "different".
        detail: why, where it is not equal.
    """

    kernel: str
    hash: str
    where: str
    result: str
    detail: str = ""


def why_not(kernel: InterpretedKernel) -> str:
    """Why a kernel cannot be compared; "" where it can."""
    if kernel.name in UNDEFINED:
        return UNDEFINED[kernel.name]
    if spin_loops(kernel.module):
        return "its programs wait for each other, some perhaps for what an L1 cache never shows"
    for op in kernel.module.walk():
        if op.name in _ADDRESSES or any(_points_to_pointer(v.type) for v in op.operands):
            return "it reads or writes addresses, which are the CPU's"
        if op.name in _ATOMICS and op.results and op.results[0].uses:
            return "what its atomics return depends on their order"
        if op.name.startswith(_MACHINE):
            return "it reads a clock or where it runs"
    return ""


def _points_to_pointer(type_: Any) -> bool:
    element = element_of(type_)
    return isinstance(element, PointerType) and isinstance(element.pointee, PointerType)


@dataclass(frozen=True)
class Rounding:
    """Reasons why the numbers of two runs of a kernel may differ.

    Attributes:
        reason: the ops that may round differently; "" for none.
        has_sums: whether sums are among them.
        relative: the relative difference that the coarsest of their results explains: a number of
            fp32 may be stored as one of fp64.
    """

    reason: str
    has_sums: bool
    relative: float


def rounding(module: Module) -> Rounding:
    """Return the reasons for which results of a module may differ."""
    names = {op.name for op in module.walk()}
    reasons = names & (SUMS | APPROXIMATIONS)
    if "arith.mulf" in names:
        reasons |= names & CONTRACTED
    results = (r for op in module.walk() if op.name in reasons for r in op.results)
    elements = {str(element_of(result.type)) for result in results}
    relative = max((TOLERANCES[d] for e, d in FLOATS.items() if e in elements), default=0.0)
    return Rounding(", ".join(sorted(reasons)), bool(names & SUMS), relative)


class Buffers:
    """The memory behind tensors, storage by storage, and copies of it on a device."""

    def __init__(self, values: Sequence[Any]) -> None:
        found: dict[int, torch.Tensor] = {}
        for tensor in _tensors(values):
            memory = _bytes_of(tensor)
            held = found.get(memory.data_ptr())
            if memory.numel() and (held is None or held.numel() < memory.numel()):
                found[memory.data_ptr()] = memory
        self.storages = sorted(found.items())

    def contents(self) -> list[torch.Tensor]:
        """Return the contents of memory now."""
        return [memory.cpu().clone() for _, memory in self.storages]

    def copied(self, contents: Sequence[torch.Tensor], device: str) -> Copy:
        """The contents on a device; storages that overlap do so there too."""
        spans: list[tuple[int, int]] = []
        for first, memory in self.storages:
            end = first + memory.numel()
            if spans and first < spans[-1][1]:
                spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
            else:
                spans.append((first, end))
        # Addresses keep what they are beside a multiple of 256.
        blocks = [
            (
                first - first % 256,
                torch.zeros(end - first + first % 256, dtype=torch.uint8).to(device),
            )
            for first, end in spans
        ]
        copy = Copy(blocks, [(first, memory.numel()) for first, memory in self.storages])
        for (first, size), content in zip(copy.storages, contents, strict=True):
            copy.at(first, size).copy_(content)
        return copy


@dataclass
class Copy:
    """Memory on another device: `blocks` are (address it stands for, bytes)."""

    blocks: list[tuple[int, torch.Tensor]]
    storages: list[tuple[int, int]]

    def at(self, address: int, size: int) -> torch.Tensor:
        """The bytes that stand for those at an address."""
        first, block = max((b for b in self.blocks if b[0] <= address), key=lambda b: b[0])
        return block[address - first : address - first + size]

    def contents(self) -> list[torch.Tensor]:
        """Return the contents of the storages now."""
        return [self.at(first, size).cpu().clone() for first, size in self.storages]

    def value(self, value: Any) -> Any:
        """An argument with its tensors in this memory."""
        if isinstance(value, TensorDescriptor):
            return replace_base(value, self.value(value.base))
        if isinstance(value, tuple):
            items = [self.value(item) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        if not isinstance(value, torch.Tensor):
            return value
        memory = _bytes_of(value)
        if not memory.numel():
            return torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device=self.device
            )
        block = self.at(memory.data_ptr(), memory.numel())
        offset = block.storage_offset() // value.element_size() + value.storage_offset()
        empty = torch.empty(0, dtype=value.dtype, device=block.device)
        return empty.set_(block.untyped_storage(), offset, value.shape, value.stride())

    @property
    def device(self) -> Any:
        """The device of the memory."""
        return self.blocks[0][1].device if self.blocks else "cpu"


def replace_base(descriptor: TensorDescriptor, base: torch.Tensor) -> TensorDescriptor:
    return TensorDescriptor(
        base,
        descriptor.shape,
        descriptor.strides,
        descriptor.block_shape,
        descriptor.padding,
    )


def _tensors(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, tuple):
            yield from _tensors(value)
        elif isinstance(value, TensorDescriptor):
            yield value.base
        elif isinstance(value, torch.Tensor):
            yield value


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    with torch._C.DisableTorchFunction():
        storage = memory_of(tensor.untyped_storage())
        return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


class Agreement:
    """Launches that were repeated.

    Args:
        run: launches a kernel on a device.
        device: which.
        report: gets a JSON line for each row.

    Attributes:
        why_not: why the launches of now cannot be compared; "" where they can.
    """

    def __init__(self, run: Run, device: str = "cuda", report: Path | None = None) -> None:
        self.rows: list[Row] = []
        self.where = ""
        self.why_not = ""
        self._run, self._device, self._report = run, device, report
        self._seen: Counter[object] = Counter()

    @contextlib.contextmanager
    def checking(self) -> Iterator[Agreement]:
        """Repeat what is launched inside the `with`: of each specialisation and grid twice."""
        execute = InterpretedKernel._execute

        def spy(
            kernel: InterpretedKernel, grid: Any, values: Any, record: Any, is_reported: bool
        ) -> None:
            self._seen[kernel.src.hash, tuple(grid)] += 1
            if self._seen[kernel.src.hash, tuple(grid)] > 2:
                execute(kernel, grid, values, record, is_reported)
                return
            with _seeing_no_gaps():
                buffers = Buffers(values)
                before = buffers.contents()
            with _noting_faults() as faults:
                execute(kernel, grid, values, record, is_reported)
            reason = "it has faults" if any(map(_leaves_no_result, faults)) else ""
            result, detail = "not run", self.why_not or reason or why_not(kernel)
            if not detail:
                with _seeing_no_gaps():
                    result, detail = self._compare(kernel, grid, values, buffers, before)
            self._note(Row(kernel.name, kernel.src.hash, self.where, result, detail))

        with mock.patch.object(InterpretedKernel, "_execute", spy):
            yield self

    def _note(self, row: Row) -> None:
        self.rows.append(row)
        if self._report is not None:
            with self._report.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(row)) + "\n")

    def _compare(
        self,
        kernel: InterpretedKernel,
        grid: Any,
        values: tuple[Any, ...],
        buffers: Buffers,
        before: list[torch.Tensor],
    ) -> tuple[str, str]:
        copy = buffers.copied(before, self._device)
        moved = tuple(copy.value(value) for value in values)
        try:
            self._run(kernel, grid, moved)
            got = copy.contents()
        except Exception as error:
            return "different", f"{type(error).__name__}: {error}"[:2000]
        wanted = buffers.contents()
        if all(map(torch.equal, got, wanted)):
            return "equal", ""
        undefined = why_undefined(kernel, grid, values, buffers.copied(before, "cpu"))
        if undefined:
            return "not run", undefined
        may = rounding(kernel.module)
        place = {first: index for index, (first, _) in enumerate(buffers.storages)}
        for number, tensor in enumerate(_tensors(values)):
            index = place.get(_bytes_of(tensor).data_ptr())
            if index is None:
                continue
            size = tensor.element_size()
            whole = got[index].numel() // size * size
            mine, theirs = (m[index][:whole].view(tensor.dtype) for m in (got, wanted))
            wrong = difference(mine, theirs, may)
            if wrong:
                return "different", f"tensor {number}: {wrong}"
        return "close", may.reason


def difference(got: torch.Tensor, wanted: torch.Tensor, may: Rounding) -> str:
    """Return where two tensors differ by more than they may; "" for nowhere."""
    tolerance = max(TOLERANCES.get(got.dtype, 0.0), may.relative) if may.reason else 0.0
    if not got.dtype.is_floating_point or got.dtype.itemsize == 1:
        kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[got.itemsize]
        bad = got.view(kind) != wanted.view(kind)
    else:
        a, b = got.double(), wanted.double()
        size = b.abs()
        if may.has_sums and bool(b.isfinite().any()):
            size = size + b[b.isfinite()].abs().max()
        bad = ~((a == b) | (a.isnan() & b.isnan()) | ((a - b).abs() <= tolerance * size))
    if not bool(bad.any()):
        return ""
    first = int(bad.nonzero()[0])
    shown = [float(t[first].double()) for t in (got, wanted)]
    return (
        f"{int(bad.sum())} of {bad.numel()} {got.dtype} differ, first at {first}: "
        f"native {shown[0]!r}, interpreted {shown[1]!r}"
    )


def _seeing_no_gaps() -> contextlib.AbstractContextManager[None]:
    """Copies of memory that nothing has written keep its bytes: checks mark their own memory."""
    return torch._C.DisableTorchFunction()


def _leaves_no_result(fault: Fault) -> bool:
    return fault.severity == "error" or fault.kind in (
        "assumption",
        "misaligned-descriptor",
        "shift-range",
    )


@contextlib.contextmanager
def _noting_faults() -> Iterator[list[Any]]:
    run, faults = tkdebug.interpreter.launch.run_module, []

    def noting(*arguments: Any, **keywords: Any) -> Any:
        found = run(*arguments, **keywords)
        faults.extend(found)
        return found

    with mock.patch.object(tkdebug.interpreter.launch, "run_module", noting):
        yield faults


def run_native(kernel: InterpretedKernel, grid: Any, values: tuple[Any, ...]) -> None:
    """Compile for the GPU, launch, and wait."""
    from tkdebug.runtime.compile.native_compilation import compile_native_kernel

    alignment = alignment_key(kernel.src.fn.params, values)
    with tkdebug.mode("native"):
        native = compile_native_kernel(replace(kernel.src, alignment=alignment), 0)
        native.launch(tuple(grid), values)
        torch.cuda.synchronize()


def read_rows(report: Path) -> list[Row]:
    """The rows of a report."""
    return [Row(**json.loads(line)) for line in report.read_text(encoding="utf-8").splitlines()]


class Judge(Reference):
    """Finds what makes the result of a launch one of several.

    That is: accesses of one place by several lanes or programs, one of them a store, which nothing
    orders on a GPU (a place may be stored to again if the value is the same); and integer division
    by zero (PTX ISA, `div`: "yields an unspecified, machine-specific value").
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.stored: dict[int, tuple[object, int]] = {}
        self.readers: dict[int, set[object]] = {}
        self.why = ""

    def note_read(self, lane: Any, address: int, extents: Any) -> None:
        who = (self.pid, extents, lane)
        self.readers.setdefault(address, set()).add(who)
        if self.stored.get(address, (who, 0))[0] != who:
            self.why = ORDER

    def note_write(self, lane: Any, address: int, extents: Any, value: int) -> None:
        who = (self.pid, extents, lane)
        writer, held = self.stored.get(address, (who, value))
        if (writer != who and held != value) or self.readers.get(address, set()) - {who}:
            self.why = ORDER
        self.stored[address] = (who, value)

    def execute(self, op: Any, operands: Any, environment: Any) -> Any:
        if arith.IntegerDivision.matches(op) and bool((operands[1] == 0).any()):
            self.why = DIVISION
        return super().execute(op, operands, environment)


def why_undefined(
    kernel: InterpretedKernel, grid: Any, values: tuple[Any, ...], memory: Copy
) -> str:
    """Why a launch has no one result, as far as the reference knows; "" for nothing found.

    The reference runs small kernels of the ops that it has; of others it cannot say.
    """
    moved = runtime_values(kernel.src.specs, tuple(memory.value(value) for value in values))
    names = kernel.module.function.attributes["arg_names"]
    judge = Judge(kernel.module, moved, grid, names)
    try:
        judge.run()
    except NotImplementedError:
        return ""
    return judge.why


# As a pytest plugin.

_KEY: pytest.StashKey[Agreement] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--agree-report", type=Path, help="launch natively too; a line for each")


def pytest_configure(config: pytest.Config) -> None:
    report = config.getoption("--agree-report")
    if report is None:
        return
    agreement = Agreement(run_native, report=report)
    checking = contextlib.ExitStack()
    checking.enter_context(agreement.checking())
    config.add_cleanup(checking.close)
    config.stash[_KEY] = agreement


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    agreement = item.config.stash.get(_KEY, None)
    if agreement is not None:
        agreement.where = item.nodeid
        marker = item.get_closest_marker("interpreted_only")
        agreement.why_not = "" if marker is None else str(marker.args[0])


def main() -> None:
    """Run a script interpreted, and what it launches natively too."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agree-report", type=Path)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    from tkdebug.compat import install

    agreement = Agreement(run_native, report=options.agree_report)
    agreement.where = Path(options.script).name
    sys.argv = [options.script, *options.arguments]
    sys.path.insert(0, str(Path(options.script).resolve().parent))
    with contextlib.ExitStack() as stack:
        stack.enter_context(install("interpret", quick=True, checks=("none",)))
        stack.enter_context(agreement.checking())
        stack.enter_context(mock.patch.object(Mark, "run", return_value=None))
        runpy.run_path(options.script, run_name="__main__")


if __name__ == "__main__":
    main()
