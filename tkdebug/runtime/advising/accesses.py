"""Accesses to global memory of one launch: counted addresses laid out as the GPU's threads do.

Arguments that keep addresses from being multiples of 16 bytes are named, if the access would be
aligned with multiples. The search goes from the address down, along the axis on which elements
follow each other: into all terms of a sum that are not aligned, and into the factors of a product
that is not. A value that is aligned whatever the arguments are, such as `tile * BLOCK`, ends it. If
something else misaligns a term, such as a constant or a loaded number, no argument would help, and
none is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tkdebug.advice.facts import AccessFacts, AccessKind, AccessPath
from tkdebug.compiler.analysis.axis_facts import AxisInfo, unit_of
from tkdebug.compiler.analysis.axis_info import analyse
from tkdebug.compiler.analysis.data_flow import source_of
from tkdebug.compiler.analysis.global_memory import (
    MAX_ACCESS_BYTES,
    consecutive_elems,
    mask_of,
    neighbouring_elems,
    vector_elems,
)
from tkdebug.compiler.analysis.requests import SECTOR_BYTES, Requests, requests_of
from tkdebug.compiler.dialects import arith, tt, ttg, ttng
from tkdebug.compiler.dialects.interfaces import MaskedAccess, PointerAccess, SameElements, accessed
from tkdebug.compiler.ir import Module, Operation, Value
from tkdebug.compiler.ir.control_flow import CONTROL_FLOW, edges_from, incoming
from tkdebug.compiler.ir.op_view import names_of
from tkdebug.compiler.ir.types import PointerType, TensorType, element_of, encoding_of, shape_of
from tkdebug.compiler.layouts import LinearLayout
from tkdebug.errors import Frame
from tkdebug.interpreter.launch_profile import AccessProfile, LaunchProfile
from tkdebug.runtime.advising.executions import Executions, loops_around
from tkdebug.runtime.advising.loops import RepeatedWork

_POINTER_ACCESSES = (
    tt.Load.name,
    tt.Store.name,
    tt.AtomicRmw.name,
    tt.AtomicCas.name,
    ttg.AsyncCopyGlobalToLocal.name,
)
_BULK = (ttng.AsyncTmaCopyGlobalToLocal.name, ttng.AsyncTmaCopyLocalToGlobal.name)
_MOST_SLICED = 2000
# Programs of the first round that accesses are compared for.
_ALIKE = 2
# The divisor that arguments are specialised for.
ALIGNED = 16
# Aligned if all their operands are.
_SUMS = names_of(
    *(tt.AddPtr, arith.AddI, arith.SubI, arith.RemSI, arith.RemUI),
    arith.IntegerExtremum,
)
# Aligned if one of their operands is.
_PRODUCTS = names_of(arith.MulI)
_MOVES = names_of(SameElements, arith.IntegerCast)
Arguments = frozenset[Value]
_NONE: Arguments = frozenset()


@dataclass(frozen=True, slots=True)
class _Form:
    """Form in which threads make an access.

    Attributes:
        layout: the layout of the pointers; None for a scalar, and for bulk copies.
        vector: elements that one access of a thread takes.
        why: why a thread takes no more elements at once, "" if it takes all that it can.
        neighbours: elements of a thread that follow each other in memory, aligned or not.
        held: elements of a thread that follow each other in the tile.
        odd: the arguments that keep addresses from being aligned, "" if no argument does.
    """

    path: AccessPath
    layout: LinearLayout | None
    vector: int
    why: str
    neighbours: int = 1
    odd: str = ""
    held: int = 1


def access_facts(
    profile: LaunchProfile, gpu: Module, executions: Executions, repeated: RepeatedWork
) -> tuple[AccessFacts, ...]:
    """The facts of every access that ran."""
    forms = _forms(gpu, executions)
    unneeded = unneeded_bytes(profile)
    return tuple(
        _facts(access, forms.get(op.id), profile, repeated, unneeded.get(op, 0))
        for op, access in profile.accesses.items()
    )


def unneeded_bytes(profile: LaunchProfile) -> dict[Operation, int]:
    """Return by access the bytes of its sectors that no access of its kind needs.

    Accesses that touch the same sector share its gaps.
    """
    groups: dict[tuple[object, ...], dict[Operation, Tensor]] = {}
    for (storage, op), footprint in profile.footprints.items():
        per = max(1, SECTOR_BYTES // footprint.itemsize)
        elements = torch.nn.functional.pad(footprint.seen, (0, -footprint.seen.numel() % per))
        key = storage, profile.accesses[op].kind, footprint.itemsize, elements.numel()
        groups.setdefault(key, {})[op] = elements.view(-1, per)
    found: dict[Operation, int] = {}
    for (_, _, itemsize, _), group in groups.items():
        assert isinstance(itemsize, int)
        needed = torch.zeros_like(next(iter(group.values())))
        touching = torch.zeros(needed.shape[0], dtype=torch.int32, device=needed.device)
        for elements in group.values():
            needed |= elements
            touching += elements.any(1)
        gaps = (needed.shape[1] - needed.sum(1)) * itemsize / touching.clamp(min=1)
        for op, elements in group.items():
            found[op] = found.get(op, 0) + int(gaps[elements.any(1)].sum(dtype=torch.float64))
    return found


def _forms(gpu: Module, executions: Executions) -> dict[int, _Form]:
    """Return by op of Tile IR how the GPU makes its access; in a loop, where passes copied it."""
    infos = analyse(gpu.function)
    found: dict[int, tuple[int, _Form]] = {}
    for op in gpu.walk():
        if op.name not in (*_POINTER_ACCESSES, *_BULK):
            continue
        tile = executions.tile_op(op.id)
        if tile is None:
            continue
        depth = loops_around(op)
        if tile.id not in found or found[tile.id][0] < depth:
            found[tile.id] = depth, _form(op, infos)
    return {op_id: form for op_id, (_, form) in found.items()}


def _form(op: Operation, infos: Mapping[Value, AxisInfo]) -> _Form:
    if op.name in _BULK:
        return _Form("bulk", None, 0, "")
    pointer = PointerAccess(op).pointer
    path: AccessPath = "copy" if ttg.AsyncCopyGlobalToLocal.matches(op) else "registers"
    layout = encoding_of(pointer.type) if isinstance(pointer.type, TensorType) else None
    if layout is None:
        return _Form(path, None, 1, "")
    mask = mask_of(op) if MaskedAccess.cast(op) is not None else None
    mask_info = None if mask is None else infos[mask]
    vector = vector_elems(op, layout, infos[pointer], mask_info)
    why = _why_narrow(op, vector, infos[pointer], mask_info)
    neighbours = neighbouring_elems(layout, infos[pointer])
    info = infos[pointer]
    odd = _odd_arguments(op, info, infos) if _is_odd(info, vector) else ""
    held = consecutive_elems(layout)
    return _Form(path, layout, vector, f"{why}: {odd}" if odd else why, neighbours, odd, held)


def _why_narrow(op: Operation, vector: int, info: AxisInfo, mask: AxisInfo | None) -> str:
    """Return why an access of a thread takes no more elements; "" if no reason is known."""
    pointee = PointerAccess(op).pointer.type
    assert isinstance(pointee, TensorType)
    axis = _longest_axis(info)
    if info.contiguity[axis] <= vector:
        if info.contiguity[axis] == 1:
            return "neighbouring elements of the tile are not known to be neighbours in memory"
        return f"only {info.contiguity[axis]} elements are known to follow each other in memory"
    if _is_odd(info, vector):
        known = info.divisibility[axis]
        unit = "byte" if known == 1 else "bytes"
        return f"the address is only known to be a multiple of {known} {unit}"
    if mask is not None and mask.constancy[axis] <= vector:
        return (
            f"the mask is only known to be the same for {mask.constancy[axis]} neighbours; "
            "a bound that is a multiple of 16 makes it so"
        )
    return ""


def _longest_axis(info: AxisInfo) -> int:
    """The axis along which most elements follow each other."""
    return max(range(len(info.contiguity)), key=lambda a: (info.contiguity[a], a))


def _is_odd(info: AxisInfo, vector: int) -> bool:
    """Whether the alignment of runs of elements keeps accesses narrow."""
    axis = _longest_axis(info)
    return info.contiguity[axis] > vector and info.divisibility[axis] < MAX_ACCESS_BYTES


def _odd_arguments(op: Operation, info: AxisInfo, infos: Mapping[Value, AxisInfo]) -> str:
    """Name the arguments of an address that are no known multiples of 16, with the fix."""
    function = op
    while function.block is not None and (parent := function.block.parent_op) is not None:
        function = parent
    arguments = MisalignedArguments(function, infos)
    return arguments.text(PointerAccess(op).pointer, _longest_axis(info))


def _facts(
    access: AccessProfile,
    form: _Form | None,
    profile: LaunchProfile,
    repeated: RepeatedWork,
    unneeded_bytes: int,
) -> AccessFacts:
    op = access.op
    if form is None:
        form = _Form("registers", None, 1, "")
    elems = int(np.prod(access.shape)) if access.shape else 1
    requests = _requests(access, form)
    reached = _reached(access)
    width = access.itemsize * (form.vector if form.layout is not None else 1)
    footprints = [f for (_, o), f in profile.footprints.items() if o is op]
    most = profile.most_per_address.get(op)
    frame = _frame(op)
    return AccessFacts(
        op_id=op.id,
        frame=frame,
        kind=_kind(access.kind),
        path=form.path,
        tensor=access.tensor,
        element_bytes=access.itemsize,
        executions=access.executions,
        tile_elems=elems,
        elements=access.elements if access.exact else elems * access.executions,
        requests=reached * _mean(r.count for r in requests),
        sectors=reached * _mean(r.sectors for r in requests),
        needed_sectors=reached * _mean(r.needed for r in requests),
        lines=reached * _mean(r.lines for r in requests),
        program_sectors=reached * _mean(r.distinct for r in requests),
        width_bytes=MAX_ACCESS_BYTES if form.path == "bulk" else width,
        possible_bytes=min(MAX_ACCESS_BYTES, access.itemsize * elems),
        thread_bytes=access.itemsize * form.neighbours,
        held_bytes=access.itemsize * form.held,
        in_loop=loops_around(op) > 0,
        reached=reached,
        loop_depends=_depends_on_load_of_loop(op),
        is_gather=_comes_from_memory(op),
        is_divided=_is_divided(op),
        repeated=access.repeated / access.compared if access.compared else 0.0,
        again=repeated.rounds(op),
        address_loads=tuple(dict.fromkeys(o.id for o in _slice(op) if tt.Load.matches(o))),
        axes=_axes(op),
        kept=_kept(access),
        loaded_by=_loaded_by(access, profile),
        same_address=int(most.max()) if most is not None and most.numel() else 1,
        same_sector=_most_per_sector(most, access.itemsize),
        addresses=reached * _mean(r.addresses for r in requests),
        overfetch_bytes=unneeded_bytes,
        tile_axes=len(access.shape),
        footprint_bytes=sum(f.element_bytes for f in footprints),
        why_narrow=form.why,
        odd=form.odd,
        exact=access.exact,
    )


def _kept(access: AccessProfile) -> float:
    """Return the share of a tile's sectors that the program's previous execution touched, too.

    For a scalar, return the share of executions at an earlier execution's address: its sector is
    seldom read again before an iteration's other loads have replaced it.
    """
    if not access.shape:
        return access.repeated / access.compared if access.compared else 0.0
    return access.kept_sectors / access.sectors if access.sectors else 0.0


def _most_per_sector(counted: Tensor | None, itemsize: int) -> int:
    """Maximum number of accesses to one sector, from the number for each element of the tensor."""
    if counted is None or not counted.numel():
        return 1
    per = max(1, SECTOR_BYTES // itemsize)
    padded = torch.nn.functional.pad(counted, (0, -counted.numel() % per))
    return int(padded.view(-1, per).sum(1).max())


def _loaded_by(access: AccessProfile, profile: LaunchProfile) -> int | None:
    """Return the id of the first load of the same elements in all sampled programs, or None."""
    if access.kind != "load" or not access.samples or not access.shape:
        return None
    keys = {key for key, op in profile.footprints if op is access.op}
    for op, other in profile.accesses.items():
        if op is access.op:
            return None
        is_same_tensor = keys & {key for key, one in profile.footprints if one is op}
        if other.kind == "load" and is_same_tensor and _begin_alike(access, other):
            return op.id
    return None


def _begin_alike(one: AccessProfile, other: AccessProfile) -> bool:
    """Whether two accesses touch the same elements in the first executions that were sampled."""
    pairs = list(zip(one.samples, other.samples, strict=False))[:_ALIKE]
    return bool(pairs) and all(
        a.shape == b.shape and bool((a == b).all()) for (a, _), (b, _) in pairs
    )


def _requests(access: AccessProfile, form: _Form) -> list[Requests]:
    found = []
    for addresses, positions in access.samples:
        places, at = addresses.numpy(), positions.numpy()
        if form.path == "bulk" or (form.layout is not None and not access.shape):
            sectors = int(np.unique(places // SECTOR_BYTES).size)
            found.append(Requests(1, sectors, sectors, -(-sectors // 4), sectors))
        else:
            found.append(
                requests_of(form.layout, form.vector, access.shape, access.itemsize, places, at)
            )
    return found


def _reached(access: AccessProfile) -> float:
    """Return the estimated share of executions in which masks let anything through.

    It is the mean number of elements of all executions over that of the sampled ones. Samples begin
    with the first programs, whose rows may be longer than others'. The requests of an execution are
    taken to be in proportion to its elements: warps without any make none.
    """
    sampled = _mean(positions.numel() for _, positions in access.samples)
    if not access.exact or not access.executions or not sampled:
        return 1.0
    return min(1.0, access.elements / access.executions / sampled)


def _kind(kind: str) -> AccessKind:
    match kind:
        case "load" | "store" | "atomic":
            return kind
        case _:
            raise AssertionError(kind)


def _mean(values: Iterator[int]) -> float:
    known = list(values)
    return sum(known) / len(known) if known else 0.0


def _frame(op: Operation) -> Frame:
    return op.location.frames[-1]


def _slice(op: Operation) -> Iterator[Operation]:
    """Yield the ops that compute an access's addresses, by way of values that loops carry, too."""
    for value in _sliced_values(op):
        maker = value.defining_op
        if maker is not None and maker.name not in CONTROL_FLOW:
            yield maker


def _sliced_values(op: Operation) -> Iterator[Value]:
    """Yield the values that an access's addresses are computed from, kernel arguments included."""
    return _computed_from(op, [accessed(op)])


def _computed_from(op: Operation, values: list[Value]) -> Iterator[Value]:
    """Yield some values of an op's function, and all values that they are computed from."""
    sources = _sources(op)
    seen: set[Value] = set()
    while values and len(seen) < _MOST_SLICED:
        value = values.pop()
        if value in seen:
            continue
        seen.add(value)
        yield value
        values += sources.get(value, ())
        maker = value.defining_op
        if maker is not None and maker.name not in CONTROL_FLOW:
            values += maker.operands


def _sources(op: Operation) -> dict[Value, list[Value]]:
    """Return the sources of each argument and result of control flow around and before an op."""
    top = op
    while top.block is not None and (parent := top.block.parent_op) is not None:
        top = parent
    found: dict[Value, list[Value]] = {}
    for branch in top.walk():
        for edge in edges_from(branch):
            for source, target in zip(edge.operands, edge.values, strict=True):
                found.setdefault(target, []).append(source)
    return found


def _axes(op: Operation) -> frozenset[int]:
    """Return the grid axes that an access's addresses, or the loops around it, depend on."""
    found: set[int] = set()
    around: Operation | None = op
    while around is not None and not tt.Func.matches(around):
        values = [accessed(op)] if around is op else list(around.operands)
        makers = (value.defining_op for value in _computed_from(op, values))
        found |= {
            tt.GetProgramId(maker).axis
            for maker in makers
            if maker is not None and tt.GetProgramId.matches(maker)
        }
        around = around.block.parent_op if around.block is not None else None
    return frozenset(found)


def _comes_from_memory(op: Operation) -> bool:
    """Whether elements of a tile are addressed by loaded tiles."""
    return any(tt.Load.matches(maker) and shape_of(maker.result.type) != () for maker in _slice(op))


def _is_divided(op: Operation) -> bool:
    """Whether elements of a tile are addressed by quotients or remainders."""
    return any(
        arith.IntegerDivision.matches(maker) and shape_of(maker.result.type) != ()
        for maker in _slice(op)
    )


def _depends_on_load_of_loop(op: Operation) -> bool:
    """Whether an iteration's addresses come from loads of the loop."""
    loops = loops_around(op)
    return bool(loops) and any(
        tt.Load.matches(maker) and loops_around(maker) >= loops for maker in _slice(op)
    )


class MisalignedArguments:
    """Finds the arguments of one function that keep addresses from being aligned.

    Args:
        function: the tt.func.
        infos: the contiguity and divisibility of its values.
    """

    def __init__(self, function: Operation, infos: Mapping[Value, AxisInfo]) -> None:
        view = tt.Func(function)
        known = zip(view.body.arguments, view.arg_names, view.arg_divisibility or (), strict=False)
        self._names = {argument: name for argument, name, by in known if by % ALIGNED}
        self._infos = infos
        self._entered: set[tuple[Value, int | None]] = set()

    def text(self, pointer: Value, axis: int) -> str:
        """Return what would align a tile of pointers whose runs begin anywhere; "" if nothing.

        Args:
            pointer: the tile.
            axis: along which its elements follow each other.
        """
        self._entered.clear()
        found = self._behind(pointer, axis, MAX_ACCESS_BYTES)
        if not found:
            return ""
        names = [f"`{name}`" for name in sorted(self._names[argument] for argument in found)]
        listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
        is_one = len(found) == 1
        verb = "is" if is_one else "are"
        if any(isinstance(argument.type, PointerType) for argument in found):
            return f"{listed} {verb} not known to be aligned to {ALIGNED}"
        if is_one:
            return f"{listed} is not known to be a multiple of {ALIGNED} (pad rows so that it is)"
        return f"{listed} are not known to be multiples of {ALIGNED} (pad rows so that they are)"

    def _behind(self, value: Value, axis: int | None, needed: int) -> Arguments | None:
        """Return the arguments that make a value no multiple of `needed`, None if other values do.

        Args:
            value: a number, or a tile of them.
            axis: the axis along which only the beginnings of runs count; None if every element
                does.
            needed: bytes of a pointer, else elements.
        """
        if self._is_aligned(value, axis, needed):
            return _NONE
        if value in self._names:
            return frozenset([value])
        if (value, axis) in self._entered:
            return _NONE  # a loop's, whose other terms are looked at where it was entered
        self._entered.add((value, axis))
        maker = value.defining_op
        if maker is None or maker.name in CONTROL_FLOW:
            sources = incoming(value)
            return self._of_sum((one, axis, needed) for one in sources) if sources else None
        if maker.name in _SUMS:
            return self._of_sum(
                (one, axis, self._needed(one, value, needed)) for one in maker.operands
            )
        select = arith.Select.cast(maker)
        if select is not None:
            chosen = (select.true_value, select.false_value)
            return self._of_sum((one, axis, needed) for one in chosen)
        if maker.name in _PRODUCTS:
            factors = [self._behind(one, axis, needed) for one in maker.operands]
            named = [found for found in factors if found]
            return frozenset().union(*named) if named else None
        source = source_of(value, _MOVES | arith.ShLI.names)
        if source is None:
            return None
        return self._behind(source, _axis_before(maker, source, axis), needed)

    def _of_sum(self, terms: Iterable[tuple[Value, int | None, int]]) -> Arguments | None:
        found = _NONE
        for term in terms:
            behind = self._behind(*term)
            if behind is None:
                return None
            found |= behind
        return found

    def _is_aligned(self, value: Value, axis: int | None, needed: int) -> bool:
        info = self._infos[value]
        known = info.every_divisor(unit_of(value.type)) if axis is None else info.divisibility[axis]
        return known % needed == 0

    def _needed(self, operand: Value, result: Value, needed: int) -> int:
        """Return the divisor that an operand of a sum must have: in elements for an offset."""
        is_offset = isinstance(element_of(result.type), PointerType) and not isinstance(
            element_of(operand.type), PointerType
        )
        return max(1, needed // unit_of(result.type)) if is_offset else needed


def _axis_before(op: Operation, source: Value, axis: int | None) -> int | None:
    """Return the operand's axis that becomes `axis` of the op's result, or None."""
    shape = shape_of(source.type)
    if axis is None or not shape:
        return None
    if tt.ExpandDims.matches(op):
        added = tt.ExpandDims(op).axis
        return None if axis == added else axis - (axis > added)
    return axis if shape[axis] > 1 else None
