"""Launches with what must not matter varied: block sizes, the order of programs, leftovers.

Each way to run a launch is compared with the launch as the script makes it, interpreted before any
pass. Where an element differs, it is followed back in both to the first value that does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.causes.rerun import Budget, OutOfTimeError, Store
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.rewriting.copies import copy_module
from tkdebug.errors import TkError, UsageError
from tkdebug.interpreter.memory_usage import written_arguments
from tkdebug.interpreter.observers import Moments, Observer
from tkdebug.interpreter.replay import read_arguments
from tkdebug.variations.bisection import Culprit, bisect
from tkdebug.variations.elements import Parting, ProgramTrace, Slice, parting, slice_of
from tkdebug.variations.grids import extents
from tkdebug.variations.launches import KeptLaunch
from tkdebug.variations.native_levels import USUAL, native_runner
from tkdebug.variations.outcomes import (
    Difference,
    Outcome,
    Tolerance,
    difference,
    run_kept,
    whole_bytes,
)
from tkdebug.variations.recorded import Recorded, first_recorded, run_watched, watches_on
from tkdebug.variations.values import Replacements, first_values, store_of
from tkdebug.variations.ways import Classes, Found, PoisonedPadding, Way, front_end, gpu_ir

if TYPE_CHECKING:
    from tkdebug.compiler.ir import Module, Operation
    from tkdebug.watches.places import Watch

# The most parts of a grid that run in another order; in larger grids a part is several programs.
_MOST_PARTS = 64
NAN_BYTES, ZERO_BYTES = 0xFF, 0


class Divergence:
    """One launch, run in several ways.

    Args:
        launch: the launch as the script makes it.
        target: the architecture whose passes count.
        seconds: the seconds of processor time for each way.

    Attributes:
        module: its Tile IR before any pass.
    """

    def __init__(self, launch: KeptLaunch, target: str, seconds: float) -> None:
        self.launch = launch
        self.target = target
        self.module = front_end(launch)
        self._seconds = seconds
        self._usual = Way("as it is", launch, self.module)
        self.tolerance = Tolerance.of(self.module)
        self._native_tolerance = Tolerance.of(self.module, natively=True)
        self._known: dict[str, Outcome] = {}
        # By configurations: the pass that first changes a bit of their results.
        self._bit_changers: dict[str, Culprit | None] = {}

    @cached_property
    def expected(self) -> Outcome:
        """The result as the script makes it."""
        return self._run(self._usual)

    def _expected(self, usual: Way | None) -> Outcome:
        """The outcome to compare with: of `usual`, or of the launch as the script makes it."""
        if usual is None:
            return self.expected
        if usual.name not in self._known:
            self._known[usual.name] = self._run(usual)
        return self._known[usual.name]

    # Ways

    def ways(self, what: str) -> Iterator[Way | Found]:
        """Yield the ways of one kind; for one that cannot be run, a `Found` with the reason.

        Args:
            what: "order", "padding", "outputs", "passes", "native", "triton", "warps", "stages",
                or the name, or beginning of names, of meta-parameters.
        """
        known: dict[str, Callable[[], Iterator[Way | Found]]] = {
            "order": self._orders,
            "padding": self._paddings,
            "outputs": self._outputs,
            "passes": self._passes,
            "native": self._natively,
            "triton": self._by_triton,
            "warps": partial(self._options, "num_warps", (1, 2, 4, 8)),
            "stages": partial(self._options, "num_stages", (1, 2, 3, 4)),
        }
        yield from known.get(what, partial(self._blocks, what))()

    def _orders(self) -> Iterator[Way | Found]:
        x, y, z = self.launch.grid
        total = x * y * z
        if total == 1:
            yield Found("order", refused="the grid has one program")
            return
        step = max(1, -(-total // _MOST_PARTS))
        parts = [range(first, min(first + step, total)) for first in range(0, total, step)]
        shuffled = [parts[int(i)] for i in torch.randperm(len(parts), generator=_generator())]
        # As it is, programs run side by side, each op for all of them.
        own, module, half = self.launch, self.module, total // 2
        in_turn = Way("programs one by one", own, module, tuple(parts), rounds_otherwise=True)
        yield in_turn
        yield Way("order reversed", own, module, tuple(reversed(parts)), usual=in_turn)
        yield Way("order shuffled", own, module, tuple(shuffled), usual=in_turn)
        split = (range(half), range(half, total))
        yield Way("grid split in two", own, module, split, rounds_otherwise=True)

    def _paddings(self) -> Iterator[Way | Found]:
        poison = PoisonedPadding()
        if not any(poison.moments(op) & Moments.AFTER for op in self.module.walk()):
            yield Found("padding", refused="no load has a mask and no other value")
            return
        yield Way("padding poisoned", self.launch, self.module, poisons=True)

    def _outputs(self) -> Iterator[Way | Found]:
        if not self.only_written():
            yield Found("outputs", refused="no argument is only written")
            return
        for text, fill in (("NaNs", NAN_BYTES), ("zeros", ZERO_BYTES)):
            yield Way(f"outputs filled with {text}", self.launch, self.module, fill=fill)

    def only_written(self) -> frozenset[str]:
        """Return the names of the parameters that the kernel writes and does not read."""
        written, read = written_arguments(self.module), read_arguments(self.module)
        if written is None or read is None:
            return frozenset()
        names = tt.Func(self.module.function).arg_names
        return frozenset(name for place, name in enumerate(names) if place in written - read)

    def _options(self, option: str, values: Sequence[int]) -> Iterator[Way | Found]:
        now = getattr(self.launch.src.options, option)
        for value in values:
            if value != now:
                yield from self._made(f"{option}={value}", {option: value}, is_gpu=True)

    def _blocks(self, what: str) -> Iterator[Way | Found]:
        params = [p for p in self.launch.src.fn.params if p.is_constexpr]
        given = dict(zip(self.launch.src.fn.arg_names, self.launch.values, strict=True))
        exact = [p.name for p in params if p.name == what]
        names = exact or [p.name for p in params if p.name.upper().startswith(what.upper())]
        names = [name for name in names if _is_power_of_2(given[name])]
        if not names:
            known = ", ".join(p.name for p in params) or "none"
            yield Found(what, refused=f"no meta-parameter of that name is a power of 2 ({known})")
        for name in names:
            old = int(given[name])
            for value in (old // 2, old * 2):
                covered = [size for size in extents(self.launch) if value < size <= old]
                if value < 1:
                    continue
                if covered:
                    text = f"a block of {old} covers an extent of {covered[0]}, {value} would not"
                    yield Found(f"{name}={value}", refused=text)
                    continue
                yield from self._made(f"{name}={value}", {name: value})

    def _made(
        self, name: str, changes: dict[str, Any], config: Any = None, is_gpu: bool = False
    ) -> Iterator[Way | Found]:
        try:
            launch = self.launch.again(changes, config)
            module = gpu_ir(launch, self.target) if is_gpu else front_end(launch)
        except TkError as error:
            yield Found(name, refused=str(error).splitlines()[0])
        else:
            yield Way(name, launch, module, is_gpu=is_gpu)

    def classes(self) -> Classes | None:
        """Return which configurations of a tuner agree bit for bit; None if it has not several."""
        request = self.launch.request
        if request is None or len(request.configs) < 2:
            return None
        found: list[tuple[Way, Outcome, list[str]]] = []
        refused = []
        for config in request.configs:
            for way in self._made(config.brief, {}, config, is_gpu=True):
                if isinstance(way, Found):
                    refused.append(way)
                    continue
                got = self._native_or_ir(way)
                for _, known, names in found:
                    if difference(got, known, Tolerance()) is None:
                        names.append(way.name)
                        break
                else:
                    found.append((way, got, [way.name]))
        parted = [self._part(found[0], other) for other in found[1:]]
        return Classes(tuple(tuple(names) for _, _, names in found), tuple(parted), tuple(refused))

    def _native_or_ir(self, way: Way) -> Outcome:
        runner = native_runner(way.launch, self.target)
        return self._run(way) if runner is None else runner(USUAL)

    @property
    def _tolerance_of_classes(self) -> Tolerance:
        is_native = native_runner(self.launch, self.target) is not None
        return self._native_tolerance if is_native else self.tolerance

    def _part(
        self, first: tuple[Way, Outcome, list[str]], other: tuple[Way, Outcome, list[str]]
    ) -> Found:
        """Return where two configurations part: at an op of the source, or in a pass."""
        (one, expected, _), (way, got, _) = first, other
        beyond = difference(got, expected, self._tolerance_of_classes)
        bits = beyond or difference(got, expected, Tolerance())
        assert bits is not None
        bits = replace(bits, text=bits.text.replace(", it was ", f", with {one.name} "))
        plain = Found(way.name, difference=beyond and bits, note="" if beyond else bits.text)
        ways = [replace(each, module=front_end(each.launch)) for each in (one, way)]
        before, after = (self._run(each) for each in ways)
        in_source = difference(after, before, self.tolerance if beyond else Tolerance())
        if in_source is not None:
            tolerance = self.tolerance if beyond else Tolerance()
            return self.compare_elements(ways[1], plain, in_source, tolerance, ways[0])
        for each in ways:
            if each.name not in self._bit_changers:
                looked = bisect(each.launch, self.target, self._seconds, counts_bits=True)
                self._bit_changers[each.name] = looked.culprit
            culprit = self._bit_changers[each.name]
            if culprit is not None and culprit.rewrite is not None:
                at = culprit.rewrite.at
                what = f"with {each.name}, {culprit.pass_name} changes the bits"
                note = "; ".join(one for one in (plain.note, what) if one)
                return replace(plain, at=at.frames, op=at.name, note=note)
        return plain

    def against(self, other: KeptLaunch) -> Way | Found:
        """Return the way to run another version's kernel on this launch's inputs.

        If it cannot be run, return a `Found` with the reason.

        Args:
            other: the launch of the same kernel by another version of the script.
        """
        name = "the other version"
        if other.src.fn.arg_names != self.launch.src.fn.arg_names:
            return Found(name, refused="its kernel has other parameters")
        constants = [p.is_constexpr for p in self.launch.src.fn.params]
        values = tuple(
            theirs if is_constant else ours
            for ours, theirs, is_constant in zip(
                self.launch.values, other.values, constants, strict=True
            )
        )
        try:
            launch = replace(other, values=values)
            return Way(name, launch, front_end(launch), is_other_source=True)
        except TkError as error:
            return Found(name, refused=str(error).splitlines()[0])

    def _passes(self) -> Iterator[Way | Found]:
        try:
            module = gpu_ir(self.launch, self.target)
            yield Way(f"passes of {self.target}", self.launch, module, is_gpu=True)
        except TkError as error:
            yield Found("passes", refused=str(error).splitlines()[0])

    def _natively(self) -> Iterator[Way | Found]:
        runner = native_runner(self.launch, self.target)
        if runner is None:
            yield Found("native", refused=f"needs a GPU of {self.target}")
            return
        record = partial(run_watched, self.launch, mode_name="native")
        yield Way("native", self.launch, self.module, run=lambda: runner(USUAL), record=record)

    def _by_triton(self) -> Iterator[Way | Found]:
        # Only where it is asked for: the way to another process takes time to import.
        from tkdebug.variations.triton_runs import triton_runner

        try:
            run = triton_runner(self.launch)
        except TkError as error:
            yield Found("triton", refused=str(error))
            return
        yield Way("triton", self.launch, self.module, run=run)

    # Comparisons

    def _run(
        self,
        way: Way,
        observers: Sequence[Observer] = (),
        values: tuple[Any, ...] | None = None,
        only: int | None = None,
    ) -> Outcome:
        if way.run is not None:
            return way.run()
        values = self.fresh(way) if values is None else values
        programs = way.programs if only is None else (range(only, only + 1),)
        looking = [PoisonedPadding(), *observers] if way.poisons else list(observers)
        module = copy_module(way.module) if not observers else way.module
        budget = Budget(self._seconds)
        return run_kept(
            way.launch, module, budget, observers=looking, programs=programs, values=values
        )

    def fresh(self, way: Way) -> tuple[Any, ...]:
        """Return a way's values on memory of its own, with outputs filled if the way says so."""
        values = way.launch.fresh()
        if way.fill is not None:
            tensors, names = way.launch.tensors(values), self.only_written()
            held = [t for name, t in tensors.items() if name.partition(".")[0] not in names]
            kept = {tensor.untyped_storage().data_ptr() for tensor in held}
            for name, tensor in tensors.items():
                if name in names and tensor.untyped_storage().data_ptr() not in kept:
                    _fill(tensor, way.fill)
        return values

    def look(self, way: Way) -> Found:
        """Compare a way with the usual one."""
        try:
            expected = self._expected(way.usual)  # after a crash nothing runs on a GPU
            got = self._run(way)
            note = "" if way.fill is None else self._without_unwritten(way.fill, got, expected)
            tolerance = self.tolerance if way.run is None else self._native_tolerance
            found = difference(got, expected, tolerance)
            if found is None:
                same = difference(got, expected, Tolerance()) is None
                return Found(way.name, same or way.rounds_otherwise, note=note)
            usual = self._usual.name if way.usual is None else f"with {way.usual.name}"
            found = replace(found, text=found.text.replace(", it was ", f", {usual} "))
            if way.is_gpu:
                return self._follow_passes(way, found)
            if way.record is not None and found.what == "value":
                return self._follow_recorded(way, way.record, found)
            if way.run is not None or found.what != "value":
                return Found(way.name, difference=found)
            return self._follow(way, found)
        except OutOfTimeError:
            return Found(way.name, refused=f"{self._seconds:g} s are over")
        except UsageError as error:
            return Found(way.name, refused=str(error))

    def _without_unwritten(self, fill: int, got: Outcome, expected: Outcome) -> str:
        """Overwrite outputs that still hold the fill by the usual run's: they are unwritten.

        Returns:
            The number of these elements of each tensor, in words; "" for none.
        """
        notes = []
        for name in sorted(self.only_written() & got.tensors.keys()):
            tensor = got.tensors[name]
            size = tensor.element_size()
            flat = tensor.contiguous().reshape(-1).view(torch.uint8)
            bits = flat.reshape(*tensor.shape, size)
            unwritten = (bits == fill).all(-1)
            usual = expected.tensors[name]
            unwritten &= self.tolerance.differing(tensor, usual)
            count = int(unwritten.sum())
            whole = whole_bytes(tensor)
            around = _is_around(tensor) & (whole == fill)
            whole[around] = whole_bytes(usual)[around]
            if count:
                tensor[unwritten] = usual[unwritten]
                notes.append(f"{count:,} elements of {name} are not written")
        return "; ".join(notes)

    def _follow_passes(self, way: Way, found: Difference) -> Found:
        """Look for the pass that makes a difference."""
        plain = Found(way.name, difference=found)
        culprit = bisect(way.launch, self.target, self._seconds).culprit
        if culprit is None:
            return plain
        rewrite = culprit.rewrite
        note = f"{culprit.stage_name}: {culprit.text}"
        if rewrite is None:
            return replace(plain, note=note)
        note = f"{rewrite.rule}, rewrite {rewrite.number} of {rewrite.of} of {culprit.stage_name}"
        return replace(plain, at=rewrite.at.frames, op=rewrite.at.name, note=note)

    def _follow_recorded(
        self,
        way: Way,
        record: Callable[[Sequence[Watch]], Recorded],
        found: Difference,
    ) -> Found:
        """Look for the first intermediate value that differs, by watches: native runs show none."""
        plain = Found(way.name, difference=found)
        module = copy_module(self.module)
        store = store_of(self.launch, module, found, Budget(self._seconds))
        if store is None:
            return replace(plain, note="interpreted, no program stores the element")
        made = self._slice(self._usual, module, store, found.place)
        if made is None:
            return replace(plain, note="its program computes too much to be followed")
        try:
            recorded = record(watches_on(made, self.launch, store.program))
        except TkError as error:
            return replace(plain, note=f"no values were recorded: {str(error).splitlines()[0]}")
        compared = first_recorded(made, recorded.values, self._native_tolerance)
        if compared.node is None:
            agree = f"{compared.count} values of variables on the way were recorded, and agree"
            if not compared.count:
                agree = "no value of a variable on the way was recorded"
            if self._agrees(recorded, found):
                agree = (
                    "run again, with watches, it agrees: the result depends on when programs run"
                )
            return replace(plain, program=store.program, note=agree)
        node = compared.node
        return replace(
            plain,
            at=node.op.location.frames,
            op=node.op.name,
            variable=node.value.name or "",
            program=store.program,
            round=node.loops[-1][1] if node.loops else None,
            got=compared.got,
            expected=compared.expected,
        )

    def _agrees(self, recorded: Recorded, found: Difference) -> bool:
        """Whether the element agrees with the usual run after a launch with watches."""
        tensor, usual = recorded.tensors.get(found.tensor), self.expected.tensors[found.tensor]
        if tensor is None:
            return False
        differing = self._native_tolerance.differing(tensor, usual)
        return not bool(differing[found.index])

    def _slice(self, way: Way, module: Module, store: Store, place: int) -> Slice | None:
        """Return what an element was computed from in a way; None if it cannot be followed."""
        trace = ProgramTrace(store.program)
        self._run(replace(way, module=module), (trace,), only=store.program)
        if not trace.is_whole:
            return None
        return slice_of(trace, module, store, place, way.is_other_source)

    def _follow(self, way: Way, found: Difference) -> Found:
        """Look for the first value that differs."""
        plain = Found(way.name, difference=found)
        budget = Budget(self._seconds)
        theirs = store_of(way.launch, copy_module(way.module), found, budget)
        ours = store_of(self.launch, copy_module(self.module), found, budget)
        if ours is None or theirs is None:
            who = "no run" if ours is theirs else f"only {way.name}" if ours is None else "one run"
            return replace(plain, note=f"{who} stores the element: it keeps what was there before")
        if way.launch is self.launch and way.module is self.module:
            return self._same_tiles(way, plain, theirs.program)
        return self.compare_elements(way, plain, found, self.tolerance)

    def _same_tiles(self, way: Way, plain: Found, program: int) -> Found:
        """Add to `plain` the first differing value of a program, for ways with the usual tiles."""

        def run(observer: Observer, chosen: Way) -> None:
            self._run(replace(chosen, module=copy_module(chosen.module)), (observer,))

        found = first_values(
            program,
            lambda log: run(log, way.usual or self._usual),
            lambda log: run(log, way),
            Replacements(),
            self.tolerance,
        )
        if not found:
            return plain
        first = found[0]
        return replace(
            plain,
            at=first.op.location.frames,
            op=first.op.name,
            variable=_variable(first.op),
            program=program,
            round=first.round or None,
            got=first.got,
            expected=first.expected,
        )

    def compare_elements(
        self,
        way: Way,
        plain: Found,
        found: Difference,
        tolerance: Tolerance,
        usual: Way | None = None,
    ) -> Found:
        """Follow an element back in a way and in the usual run, to the first value that differs.

        Args:
            way: the way with other tiles.
            plain: the comparison that the value is added to.
            found: the difference, which names the element.
            tolerance: the tolerance for floats.
            usual: the other run; None for the launch as it is.
        """
        slices, programs = [], []
        for one in (usual or self._usual, way):
            module, budget = copy_module(one.module), Budget(self._seconds)
            store = store_of(one.launch, module, found, budget)
            if store is None:
                return plain
            both = replace(one, is_other_source=way.is_other_source)
            made = self._slice(both, module, store, found.place)
            if made is None:
                return replace(plain, note="its program computes too much to be followed")
            slices.append(made)
            programs.append(store.program)
        part = parting(slices[0], slices[1], tolerance)
        return plain if part is None else _with(plain, part, programs[1], plain.difference is None)


def _with(plain: Found, part: Parting, program: int, rounds_alone: bool) -> Found:
    node = part.node
    notes = [one for one in (plain.note, part.reads) if one]
    if rounds_alone and part.is_sum and not part.reads:
        notes.append("the same numbers are summed in another order")
    return replace(
        plain,
        at=node.op.location.frames,
        op=node.op.name,
        variable=node.value.name or "",
        program=program,
        round=part.round,
        got=part.got,
        expected=part.expected,
        note="; ".join(notes),
    )


def _variable(op: Operation) -> str:
    return next((value.name for value in op.results if value.name), "")


def _fill(tensor: Tensor, byte: int) -> None:
    storage = tensor.untyped_storage()
    whole = torch.empty(0, dtype=torch.uint8, device=storage.device)
    whole.set_(storage, 0, (storage.nbytes(),), (1,)).fill_(byte)


def _is_around(tensor: Tensor) -> Tensor:
    """Return which bytes of a tensor's allocation belong to none of its elements: bool."""
    size, device = tensor.element_size(), tensor.device
    count = tensor.untyped_storage().nbytes()
    own = torch.zeros(-(-count // size), dtype=torch.bool, device=device)
    own.as_strided(tensor.shape, tensor.stride(), int(tensor.storage_offset())).fill_(True)
    return ~own.repeat_interleave(size)[:count]


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _is_power_of_2(value: object) -> bool:
    return type(value) is int and value > 1 and value & (value - 1) == 0
