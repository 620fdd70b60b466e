"""All facts of one launch: its interpreted run joined with its compiled kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tkdebug.advice.facts import Discarded, KernelFacts
from tkdebug.advice.machines import Machine
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.ir import Module, Operation
from tkdebug.compiler.ir.types import ScalarType, TensorType, shape_of
from tkdebug.compiler.rewriting.rewriter import PassRemark
from tkdebug.compiler.targets.registered_backends import target_of
from tkdebug.errors import TkError
from tkdebug.interpreter.launch_profile import LaunchProfile, sectors_of
from tkdebug.linemap.line_table_data import from_data
from tkdebug.runtime.advising.accesses import access_facts
from tkdebug.runtime.advising.executions import Executions
from tkdebug.runtime.advising.instruction_runs import InstructionRuns
from tkdebug.runtime.advising.loops import RepeatedWork, accumulated_reductions, loops
from tkdebug.runtime.advising.machine_code import MachineCode
from tkdebug.runtime.advising.products import broadcast_products, dots_of
from tkdebug.runtime.advising.shared_memory import shared_facts
from tkdebug.runtime.compile.native_compilation import NativeCompilation
from tkdebug.runtime.launch.requests import Grid

_SECTOR_BYTES = 32
_MATH = "math."


class NotKnown(TkError):
    """A launch cannot be judged; the message says why."""


def gather(
    tile: Module,
    profile: LaunchProfile,
    compilation: NativeCompilation,
    grid: Grid,
    kernel: str,
    machine: Machine | None,
) -> KernelFacts:
    """The facts of a launch.

    Args:
        tile: the module that was interpreted.
        profile: the interpreter's counts.
        compilation: the compilation of the same kernel, with its code.
        grid: programs along x, y, z.
        kernel: the kernel's name.
        machine: the GPU whose memory it waits for; None if none is known for its architecture.

    Raises:
        NotKnown: there is no machine code to look at.
    """
    generated, tile_ops = compilation.generated, compilation.tile_ops
    if generated is None or tile_ops is None:
        raise NotKnown(f"{kernel}: it was not compiled")
    table = from_data(generated.line_table(tile_ops))
    resources = table.resources
    if resources is None or resources.occupancy is None:
        raise NotKnown(f"{kernel}: its registers are not known")
    gpu = generated.module
    function = tt.Func(gpu.function)
    warps = function.num_warps
    executions = Executions(tile, gpu, table.ops, profile.entered, profile.programs)
    runs = InstructionRuns(gpu, table, executions)
    repeated = RepeatedWork(tile, executions)
    code = MachineCode(table, executions, runs, repeated, accumulated_reductions(tile, executions))
    accesses = access_facts(profile, gpu, executions, repeated)
    remarks = {r.op_id: r for run in generated.passes for r in run.remarks}
    options = compilation.options
    not_piped = _tile_reasons(executions, remarks)
    return KernelFacts(
        kernel=kernel,
        kernel_hash=compilation.kernel_hash,
        frame=tile.function.location.frames[-1],
        target=table.target,
        grid=grid,
        num_warps=warps,
        num_stages=options.num_stages,
        occupancy=resources.occupancy,
        registers=resources.registers,
        spill_bytes=(resources.spill_store_bytes or 0) + (resources.spill_load_bytes or 0),
        shared_bytes=resources.shared_bytes,
        accesses=accesses,
        dots=tuple(dots_of(gpu, executions, remarks)),
        shared=shared_facts(gpu, executions, warps, target_of(table.target).banks, profile.gathers),
        code=code.lines(warps),
        waits=() if machine is None else code.waits(accesses, machine),
        why_not_pipelined=not_piped,
        read_bytes=_sector_bytes(profile, "load"),
        written_bytes=_sector_bytes(profile, "store"),
        flops=_flops(tile, executions),
        widest_tile=_widest_tile(tile),
        local_bytes=resources.stack_bytes,
        broadcast_products=tuple(broadcast_products(tile, executions)),
        discarded=tuple(_discarded(profile)),
        local_lines=code.local_accesses(warps) if resources.may_spill else {},
        loops=tuple(loops(tile, executions)),
        fullest=code.fullest(),
        exact=all(access.exact for access in accesses),
    )


def _tile_reasons(executions: Executions, remarks: dict[int, PassRemark]) -> dict[int, str]:
    """Return by load of Tile IR why it is not pipelined."""
    found = {}
    for op_id, remark in remarks.items():
        if remark.kind == "pipelined":
            tile = executions.tile_op(op_id)
            found[tile.id if tile is not None else op_id] = remark.reason
    return found


def _sector_bytes(profile: LaunchProfile, kind: str) -> int:
    """Return the bytes of sectors that are read (or written), each once in the launch."""
    total = 0
    kinds = (kind, "atomic")
    keys = {key for key, op in profile.footprints if profile.accesses[op].kind in kinds}
    for storage in keys:
        footprints = [
            footprint
            for (key, op), footprint in profile.footprints.items()
            if key == storage and profile.accesses[op].kind in kinds
        ]
        total += sectors_of(footprints) * _SECTOR_BYTES
    return total


def _widest_tile(tile: Module) -> int:
    """Elements of the largest tile; 1 if there is none."""
    return max((math.prod(shape_of(v.type)) for op in tile.walk() for v in op.results), default=1)


def _flops(tile: Module, executions: Executions) -> int:
    """Count the float arithmetic on tiles; one for each element and op."""
    total = 0
    for op in tile.walk():
        counts = arith.FloatBinary.matches(op) or op.name.startswith(_MATH)
        if counts and op.results and isinstance(op.result.type, TensorType):
            element = op.result.type.element
            if isinstance(element, ScalarType) and element.name.startswith(("f", "bf")):
                total += math.prod(op.result.type.shape) * executions.of_tile(op)
        elif tt.Reduce.matches(op):
            source = tt.Reduce(op).sources[0]
            total += math.prod(shape_of(source.type)) * executions.of_tile(op)
    return total


def _discarded(profile: LaunchProfile) -> Iterator[Discarded]:
    """Yield the selects after products that often took nothing of the product."""
    for op, (total, nothing) in profile.selects.items():
        if total and nothing and _follows_dot(op):
            yield Discarded(op.location.frames[-1], nothing / total)


def _follows_dot(op: Operation) -> bool:
    """Whether the first value of a select is a product, or one after few elementwise ops."""
    value = arith.Select(op).true_value
    for _ in range(6):
        maker = value.defining_op
        if maker is None or not maker.operands:
            return False
        if tt.Dot.matches(maker):
            return True
        value = max(maker.operands, key=lambda v: math.prod(shape_of(v.type)))
    return False
