"""Makes the data of a script smaller: its grid, extents, numbers, and the contents of tensors.

Each change is kept if the script still shows its symptom; sizes that belong together change
together, so that another mistake is not made on the way.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from tkdebug.reproduction.judge import MISMATCH, Oracle
from tkdebug.reproduction.script import (
    Argument,
    Launch,
    Memory,
    Ref,
    Script,
    View,
    refs_in,
)

# Elements up to which a tensor is written out.
_LISTED = 16
# Grids that are tried for one change of an extent.
_MOST_GRIDS = 6
_EMPTY_KINDS = ("uninitialised-read", "unwritten-output")


def shrink_data(script: Script, oracle: Oracle) -> Script:
    """Return the script with less data, as far as it shows its symptom.

    Raises:
        OutOfTimeError: the time is over.
    """
    for each in (_options, _grids, _extents, _grids, _constants, _numbers, _sizes, _listings):
        script = each(script, oracle)
    return script


def _first(candidates: Iterator[Script], script: Script, oracle: Oracle) -> Script:
    """Return the first candidate that shows the symptom, else the script."""
    return next((one for one in candidates if oracle.shows(one)), script)


def smaller(number: int) -> Iterator[int]:
    """Yield positive numbers below a number, the smallest first: powers of 2, and these plus 1."""
    step = 1
    while step < number:
        yield step
        if step + 1 < min(number, 2 * step) and step > 1:
            yield step + 1
        step *= 2


def _options(script: Script, oracle: Oracle) -> Script:
    bare = tuple(replace(launch, options={}) for launch in script.launches)
    if bare == script.launches:
        return script
    return _first(iter([replace(script, launches=bare)]), script, oracle)


def _grids(script: Script, oracle: Oracle) -> Script:
    for at, launch in enumerate(script.launches):
        for axis, count in enumerate(launch.grid):
            grids = (
                (*launch.grid[:axis], fewer, *launch.grid[axis + 1 :]) for fewer in smaller(count)
            )
            made = (_with_launch(script, at, replace(launch, grid=grid)) for grid in grids)
            script = _first(made, script, oracle)
            launch = script.launches[at]
    return script


def _with_launch(script: Script, at: int, launch: Launch) -> Script:
    launches = (*script.launches[:at], launch, *script.launches[at + 1 :])
    return replace(script, launches=launches)


def _extents(script: Script, oracle: Oracle) -> Script:
    tried: set[int] = set()
    while True:
        sizes = {e for n in script.used_views for e in script.views[n].shape if e > 1} - tried
        if not sizes:
            return script
        extent = max(sizes)
        tried.add(extent)
        # An extent of 1 hides which stride is which.
        sizes_below = (new for new in smaller(extent) if new > 1)
        candidates = (one for new in sizes_below for one in resized(script, extent, new))
        script = _first(candidates, script, oracle)


def _constants(script: Script, oracle: Oracle) -> Script:
    """Make constants of kernels smaller, such as the extents of tiles."""
    for at, launch in enumerate(script.launches):
        for name, value in launch.arguments.items():
            if name not in launch.named or type(value) is not int or value <= 1:
                continue
            now = script.launches[at]
            made = (
                _with_launch(script, at, _with_argument(now, name, fewer))
                for fewer in smaller(value)
                if fewer > 1 and fewer & (fewer - 1) == 0
            )
            script = _first(made, script, oracle)
    return script


def _numbers(script: Script, oracle: Oracle) -> Script:
    """Make the numbers smaller that kernels take as run-time arguments."""
    if oracle.symptom.kind == MISMATCH and oracle.values is None:
        return script  # a kernel that is right may be wrong for strides of other tensors
    for at, launch in enumerate(script.launches):
        for name, value in launch.arguments.items():
            now = script.launches[at]
            choices: Sequence[int | float] = []
            if type(value) is int and name not in launch.named and abs(value) > 1:
                choices = [*smaller(abs(value))][:12]
            elif type(value) is float and value != 1.0:
                choices = [1.0]
            made = (_with_launch(script, at, _with_argument(now, name, one)) for one in choices)
            script = _first(made, script, oracle)
    return script


def _with_argument(launch: Launch, name: str, value: Argument) -> Launch:
    return replace(launch, arguments={**launch.arguments, name: value})


def _sizes(script: Script, oracle: Oracle) -> Script:
    """Make tensors vectors, with fewer elements where the kernel does not need them all."""
    for memory in script.used_memories:
        views = [name for name in script.used_views if script.views[name].memory == memory.name]
        read = script.check.reads if script.check else frozenset()
        if len(views) != 1 or views[0] in read or _is_described(script, views[0]):
            continue
        if _is_of_fault(script, views[0], oracle):
            continue  # a smaller one would be another mistake
        counts = [*smaller(memory.size), memory.size]
        made = (
            _of_size(script, memory, views[0], count)
            for count in counts
            if count < memory.size or len(script.views[views[0]].shape) != 1
        )
        script = _first(made, script, oracle)
    return script


def _is_described(script: Script, view: str) -> bool:
    return any(
        ref.view == view and ref.text != "{}"
        for launch in script.launches
        for argument in launch.arguments.values()
        for ref in refs_in(argument)
    )


def _is_of_fault(script: Script, view: str, oracle: Oracle) -> bool:
    tensor = oracle.symptom.tensor
    return any(
        isinstance(argument, Ref) and argument.view == view and name == tensor
        for launch in script.launches
        for name, argument in launch.arguments.items()
    )


def _of_size(script: Script, memory: Memory, view: str, count: int) -> Script:
    made = replace(memory, size=count, data=memory.data[:count])
    views = {**script.views, view: View(memory.name, (count,), (1,))}
    return replace(script.with_memory(made), views=views)


def simplify_contents(script: Script, oracle: Oracle) -> Script:
    """Replace data of tensors by calls of torch, such as `zeros`."""
    fillable = [memory for memory in script.used_memories if memory.name != oracle.output]
    whole = script
    for memory in fillable:
        whole = whole.with_memory(replace(memory, fill="zeros"))
    if all(memory.fill == "zeros" for memory in fillable):
        return script
    if oracle.shows(whole):
        return whole
    for memory in fillable:
        if memory.fill == "zeros":
            continue
        now = script
        made = (now.with_memory(one) for one in _ways(memory, oracle.symptom.kind))
        script = _first(made, script, oracle)
    return _listings(script, oracle)


def _listings(script: Script, oracle: Oracle) -> Script:
    """Write short tensors out, so that they need no file."""
    for memory in script.saved:
        if memory.size <= _LISTED:
            made = script.with_memory(replace(memory, fill="listed"))
            script = _first(iter([made]), script, oracle)
    return script


def _ways(memory: Memory, kind: str) -> Iterator[Memory]:
    """Yield ways to make an allocation, the simplest first."""
    ways = ["zeros", "ones", "arange", "randn"]
    if kind in _EMPTY_KINDS:
        ways.insert(0, "empty")
    if not memory.dtype.is_floating_point:
        ways.remove("randn")
    if memory.dtype is torch.bool:
        ways.remove("arange")
    order = ways
    if memory.fill in order:
        order = order[: order.index(memory.fill)]
    for fill in order:
        yield replace(memory, fill=fill)
    if memory.fill not in ("saved", "listed"):
        return
    for value in _values(memory):
        yield replace(memory, fill="full", value=value)


def _values(memory: Memory) -> Iterator[Any]:
    """Yield values of an allocation that may matter."""
    data = memory.data
    if not data.numel() or data.dtype.is_complex:
        return
    if data.dtype.is_floating_point:
        wide = data.double()
        for special in (wide.isnan(), wide == math.inf, wide == -math.inf):
            if bool(special.any()):
                yield float(wide[special][0])
        wide = wide[wide.isfinite()]
        if wide.numel():
            yield from dict.fromkeys((float(wide.max()), float(wide.min())))
    elif data.dtype is not torch.bool:
        most = int(data.max())
        yield from (one for one in smaller(most) if one > 1)
        yield from dict.fromkeys((most, int(data.min())))


def resized(script: Script, old: int, new: int) -> Iterator[Script]:
    """Yield the script with one extent changed wherever it shows, once for each grid that fits.

    Args:
        script: the script.
        old: an extent of tensors; sizes, strides and numbers that follow it change, too.
        new: the extent in its place.
    """
    views: dict[str, View] = {}
    changed: dict[int, int] = {old: new}
    for name in script.used_views:
        view = script.views[name]
        made = _resized_view(view, old, new)
        views[name] = made
        changed.setdefault(math.prod(view.shape), math.prod(made.shape))
    extents = {extent for view in views.values() for extent in view.shape}
    quantities = {**{extent: extent for extent in extents}, **changed}
    strides: dict[int, int] = {}
    for name, made in views.items():
        for before, after in zip(script.views[name].strides, made.strides, strict=True):
            if before > 1:
                strides.setdefault(before, after)
    memories = {}
    for memory in script.memories.values():
        own = {name: view for name, view in views.items() if view.memory == memory.name}
        memories[memory.name] = _resized_memory(memory, script.views, own)
    resized_data = replace(script, views={**script.views, **views}, memories=memories)
    # A number may be a size as well as a stride, such as that of the rows of a slice.
    sizes_first, strides_first = {**strides, **changed}, {**changed, **strides}
    yield from _with_numbers(resized_data, sizes_first, quantities, old, new)
    if strides_first != sizes_first:
        yield from _with_numbers(resized_data, strides_first, quantities, old, new)


def _with_numbers(
    script: Script, changed: dict[int, int], quantities: Mapping[int, int], old: int, new: int
) -> Iterator[Script]:
    """Yield a script whose numbers follow its tensors, once for each grid that fits.

    Args:
        script: with tensors that are resized already.
        changed: numbers that follow, with what they become.
        quantities: what an axis of a grid may count.
        old: the extent that was resized.
        new: what it is now.
    """
    changed.pop(1, None)
    each = [
        list(_resized_launch(launch, changed, quantities, old, new)) for launch in script.launches
    ]
    resized_data = script
    if script.check is not None:
        resized_data = replace(
            resized_data,
            check=replace(script.check, expected=_resized_text(script.check.expected, changed)),
            setup=tuple(_resized_text(text, changed) for text in script.setup),
        )
    for launches in itertools.islice(itertools.product(*each), _MOST_GRIDS):
        yield replace(resized_data, launches=launches)


def _resized_text(text: str, changed: Mapping[int, int]) -> str:
    """Return code of torch whose numbers follow the extents of tensors."""

    class Resized(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.Constant:
            value = node.value
            if isinstance(value, int) and not isinstance(value, bool) and value > 1:
                return ast.Constant(changed.get(value, value))
            return node

    return ast.unparse(Resized().visit(ast.parse(text)))


def _resized_view(view: View, old: int, new: int) -> View:
    shape = tuple(new if extent == old else extent for extent in view.shape)
    if shape == view.shape:
        return view
    order = sorted(range(len(shape)), key=lambda axis: (view.strides[axis], -axis))
    strides = list(view.strides)
    before, after = 1, 1
    for axis in order:
        if view.strides[axis] == 0:
            continue
        if view.strides[axis] == before:
            strides[axis] = after
        before, after = view.strides[axis] * view.shape[axis], strides[axis] * shape[axis]
    return View(view.memory, shape, tuple(strides), view.offset)


def _resized_memory(memory: Memory, before: Mapping[str, View], own: Mapping[str, View]) -> Memory:
    if all(before[name] == view for name, view in own.items()):
        return memory
    slack = memory.size - max(before[name].span for name in own)
    size = max(view.span for view in own.values()) + slack
    data = memory.data[:size].clone()
    if len(own) == 1 and size <= memory.size:
        ((name, view),) = own.items()
        was = before[name]
        if not (_overlaps_itself(view) or _overlaps_itself(was)):
            kept = tuple(slice(0, extent) for extent in view.shape)
            whole = memory.data.as_strided(was.shape, was.strides, was.offset)
            data.as_strided(view.shape, view.strides, view.offset).copy_(whole[kept])
    return replace(memory, size=size, data=data)


def _overlaps_itself(view: View) -> bool:
    """Whether two indices of a view may be one element, as in an expanded tensor."""
    reach = 0
    for stride, extent in sorted(zip(view.strides, view.shape, strict=True)):
        if extent > 1 and stride <= reach:
            return True
        reach += (extent - 1) * stride
    return False


def _resized_launch(
    launch: Launch, changed: Mapping[int, int], quantities: Mapping[int, int], old: int, new: int
) -> Iterator[Launch]:
    arguments = {
        name: _resized_argument(argument, changed, old, new, name in launch.named)
        for name, argument in launch.arguments.items()
    }
    blocks: list[tuple[int, int]] = [(1, 1)]
    for name, value in launch.arguments.items():
        now = arguments[name]
        if name in launch.named and type(value) is int and value > 1 and isinstance(now, int):
            blocks.append((value, now))
    counts = {
        (-(-before // block), -(-after // block_now))
        for before, after in quantities.items()
        for block, block_now in blocks
    }
    choices = [list(_counts(count, counts)) for count in launch.grid]
    for grid in itertools.product(*choices):
        yield replace(launch, arguments=arguments, grid=grid)


def _counts(count: int, counts: set[tuple[int, int]]) -> Iterator[int]:
    """Yield what a grid's axis may become: new counts of it or of two factors of it; itself."""
    found = {after for before, after in counts if before == count}
    if not found:
        found = {
            after * other_after
            for before, after in counts
            for other, other_after in counts
            if before > 1 and other > 1 and before * other == count
        }
    found.add(count)
    yield from sorted(found) if count > 1 else (count,)


def _resized_argument(
    argument: Argument, changed: Mapping[int, int], old: int, new: int, is_constant: bool
) -> Argument:
    if isinstance(argument, tuple):
        each = (_resized_argument(one, changed, old, new, is_constant) for one in argument)
        return tuple(each)
    if type(argument) is not int or argument <= 1:
        return argument
    if is_constant and argument == _power(old):
        return _power(new)
    return changed.get(argument, argument)


def _power(number: int) -> int:
    """Return the next power of 2."""
    return 1 << max(0, number - 1).bit_length()
