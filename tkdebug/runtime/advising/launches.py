"""Advice on interpreted launches: the choice of launches, and their records.

One launch of each kind is looked at: of a kernel's specialisation, grid, and shapes and strides of
arguments. If watches add ops to the interpreted kernel, counts are mapped to the bare build, whose
Tile IR has the same ops but for these and the ops that they alone need. Remarks come from tkdebug's
rules, and from the rules of plugins (entry points `tkdebug.remarks`).

All facts of one launch are put together here: its interpreted run joined with its compiled kernel.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tkdebug.advice.facts import Discarded, KernelFacts
from tkdebug.advice.judging import RemarkPlugin, judge, machine_of
from tkdebug.advice.machines import MACHINES, Machine
from tkdebug.advice.records import Remark
from tkdebug.compiler.dialects import arith, tt
from tkdebug.compiler.ir import Module, Operation, Region, Value
from tkdebug.compiler.ir.types import ScalarType, TensorType, shape_of
from tkdebug.compiler.rewriting.rewriter import PassRemark
from tkdebug.compiler.targets.registered_backends import target_of
from tkdebug.errors import Frame, TkError
from tkdebug.interpreter.launch_profile import LaunchProfile, sectors_of
from tkdebug.linemap.line_table_data import from_data
from tkdebug.plugins import Plugin, loaded
from tkdebug.records.hook_chain import HOOKS
from tkdebug.runtime.advising.accesses import access_facts
from tkdebug.runtime.advising.executions import Executions
from tkdebug.runtime.advising.loops import RepeatedWork, accumulated_reductions, loops
from tkdebug.runtime.advising.machine_code import InstructionRuns, MachineCode
from tkdebug.runtime.advising.products import broadcast_products, dots_of
from tkdebug.runtime.advising.shared_memory import shared_facts
from tkdebug.runtime.compile.native_compilation import NativeCompilation
from tkdebug.runtime.launch.requests import Grid
from tkdebug.terminal.text import tell

_SECTOR_BYTES = 32
_MATH = "math."
# A term of a score that is less leaves nothing of it.
_MASKS_OUT = -1e4
# Launches of one kernel that are looked at.
_MOST_KINDS = 8
_T = TypeVar("_T")


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
        if total and nothing and (_follows_dot(op) or _is_added_to_dot(op)):
            yield Discarded(op.location.frames[-1], nothing / total)


def _follows_dot(op: Operation) -> bool:
    """Whether the first value of a select is a dot's result, maybe after few elementwise ops."""
    return _comes_from_dot(arith.Select(op).true_value)


def _is_added_to_dot(op: Operation) -> bool:
    """Whether a select of 0 or a number that masks out is added to a product."""
    select = arith.Select(op)
    kept, masked = _number(select.true_value), _number(select.false_value)
    if kept != 0 or masked is None or masked > _MASKS_OUT:
        return False
    return any(
        _comes_from_dot(other)
        for user in op.result.uses
        if arith.AddF.matches(user)
        for other in user.operands
        if other is not op.result
    )


def _number(value: Value) -> float | None:
    """Return the number that all elements of a constant tile are; None for other tiles."""
    maker = value.defining_op
    while maker is not None:
        tile = tt.Splat.cast(maker) or tt.Broadcast.cast(maker)
        if tile is None:
            constant = arith.Constant.cast(maker)
            return None if constant is None else float(constant.value)
        maker = tile.source.defining_op
    return None


def _comes_from_dot(value: Value) -> bool:
    """Whether a value is a dot's result, maybe after few elementwise ops."""
    for _ in range(6):
        maker = value.defining_op
        if maker is None or not maker.operands:
            return False
        if tt.Dot.matches(maker):
            return True
        value = max(maker.operands, key=lambda v: math.prod(shape_of(v.type)))
    return False


class Advisor:
    """The advice on launches of one kernel.

    Args:
        kernel: the kernel's name.
        kernel_hash: the hash of the interpreted kernel.
        module: that kernel in Tile IR.
        bare: makes the Tile IR without watches; None if it has none.
    """

    def __init__(
        self,
        kernel: str,
        kernel_hash: str,
        module: Module,
        bare: Callable[[], Module] | None = None,
    ) -> None:
        self._kernel = kernel
        self._hash = kernel_hash
        self._module = module
        self._bare = bare
        self._seen: set[object] = set()

    def observer(self, grid: Grid, values: Sequence[Any]) -> LaunchProfile | None:
        """Return the observer of a launch; None if one of its kind was looked at."""
        kind = grid, tuple(map(_kind, values))
        if kind in self._seen or len(self._seen) >= _MOST_KINDS:
            return None
        self._seen.add(kind)
        return LaunchProfile()

    def launched(
        self, profile: LaunchProfile, compilation: NativeCompilation, grid: Grid, launch_id: int
    ) -> None:
        """Record the advice for a launch; report errors in one line."""
        machine = machine_of(compilation.target.name)
        try:
            module = self._module
            if self._bare is not None:
                module = self._bare()
                profile = bare_profile(profile, self._module, module)
            facts = gather(module, profile, compilation, grid, self._kernel, machine)
        except TkError as error:
            tell(f"no advice for {self._kernel}: {error}")
            return
        except Exception as error:
            # A mistake of ours must not end the script.
            reason = f"mistake in tkdebug: {type(error).__name__}: {error}"
            tell(f"no advice for {self._kernel}: {reason}")
            return
        # Launches have the hash of what was interpreted.
        facts = replace(facts, kernel_hash=self._hash)
        if machine is None:
            self._tell_unpredicted(facts)
            return
        verdict = judge(facts, machine, launch_id)
        HOOKS.record(verdict.cost)
        for record in (*verdict.lines, *verdict.remarks):
            HOOKS.record(record)
        for remark in remarks_of_plugins(facts, machine):
            HOOKS.record(replace(remark, launch_id=launch_id))

    def _tell_unpredicted(self, facts: KernelFacts) -> None:
        """Report that there is no prediction, and name the dots without a known time."""
        tell(
            f"no advice for {self._kernel}: no GPU's figures are known for {facts.target}; "
            f"--target takes {', '.join(MACHINES)}"
        )
        for frame, text in _units(facts).items():
            tell(f"{frame.file}:{frame.line}: {text}")


def _units(facts: KernelFacts) -> dict[Frame, str]:
    """Return, by line of a dot, a text: the unit that computes it, and why no faster one does."""
    names = {"fma": "FMA units", "mma": "mma.sync"}
    return {
        dot.frame: f"dot: computed by {names[dot.unit]}"
        + (" and not by tcgen05" if dot.unit == "mma" else "")
        + f", because {dot.why}"
        for dot in facts.dots
        if dot.why and dot.unit in names
    }


def _kind(value: object) -> object:
    shape = getattr(value, "shape", None)
    if shape is not None:
        stride = getattr(value, "stride", None)
        return tuple(shape), tuple(stride()) if callable(stride) else ()
    return value if isinstance(value, int | float | str | bool) else type(value)


def bare_profile(profile: LaunchProfile, watched: Module, bare: Module) -> LaunchProfile:
    """Return the profile with its ops of `watched` replaced by those of `bare`."""
    found = _alike(watched, bare)
    told = LaunchProfile()
    told.programs = profile.programs
    told.entered = {
        inside: count
        for region, count in profile.entered.items()
        if (inside := _region(region, found)) is not None
    }
    told.accesses = {
        found[op]: replace(access, op=found[op])
        for op, access in profile.accesses.items()
        if op in found
    }
    told.footprints = {
        (storage, found[op]): one
        for (storage, op), one in profile.footprints.items()
        if op in found
    }
    told.most_per_address = _renamed(profile.most_per_address, found)
    told.selects = _renamed(profile.selects, found)
    told.gathers = _renamed(profile.gathers, found)
    return told


def _renamed(
    counted: Mapping[Operation, _T], found: Mapping[Operation, Operation]
) -> dict[Operation, _T]:
    return {found[op]: value for op, value in counted.items() if op in found}


def _region(region: Region, found: Mapping[Operation, Operation]) -> Region | None:
    parent = region.parent
    other = None if parent is None else found.get(parent)
    if parent is None or other is None:
        return None
    return other.regions[parent.regions.index(region)]


def _alike(watched: Module, bare: Module) -> dict[Operation, Operation]:
    """Return, by op of a watched kernel, the same op of the bare one, if it has that op."""
    by_place = dict(_numbered(bare))
    return {op: by_place[key] for key, op in _numbered(watched) if key in by_place}


def _numbered(module: Module) -> list[tuple[object, Operation]]:
    """Return the ops of a module, each after its key: name, place, number among equal ones."""
    seen: Counter[object] = Counter()
    found: list[tuple[object, Operation]] = []
    for op in module.walk():
        place = op.name, op.location.frames
        found.append(((*place, seen[place]), op))
        seen[place] += 1
    return found


def remarks_of_plugins(facts: KernelFacts, machine: Machine) -> Iterator[Remark]:
    """Yield the remarks of plugins on a launch."""
    for plugin, rule in loaded("tkdebug.remarks", RemarkPlugin):
        yield from _remarks(plugin, rule, facts, machine)


def _remarks(
    plugin: Plugin, rule: RemarkPlugin, facts: KernelFacts, machine: Machine
) -> list[Remark]:
    found: list[object]
    try:
        found = list(rule.remarks(facts, machine))
    except Exception as error:  # another distribution's code may raise anything
        plugin.fail(error)
        return []
    remarks = [one for one in found if isinstance(one, Remark)]
    if len(remarks) < len(found):
        plugin.fail("gave something else than a tkdebug.advice.records.Remark")
    return remarks
