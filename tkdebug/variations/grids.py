"""Grids that scripts give as numbers, where meta-parameters change.

Such a number is taken for the blocks into which one or two extents were cut. Which meta-parameters
count is read off the kernel: those that multiply or divide a value computed from the program's id
on that axis.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tkdebug.errors import UsageError

if TYPE_CHECKING:
    from tkdebug.runtime.launch.requests import Grid
    from tkdebug.variations.launches import KeptLaunch


def scaled_grid(launch: KeptLaunch, changes: Mapping[str, Any]) -> Grid:
    """Return the grid of a launch, given as numbers, where meta-parameters change.

    Args:
        launch: the launch as the script makes it.
        changes: new values by name.

    Raises:
        UsageError: it cannot be known.
    """
    sizes = extents(launch)
    blocks = _blocks(launch)
    made = []
    for axis, count in enumerate(launch.grid):
        related = related_names(launch.src.fn.kernel_source.text, axis, blocks)
        if related.isdisjoint(changes):
            made.append(count)
            continue
        found = set(_counts(count, sizes, {name: blocks[name] for name in related}, changes))
        if len(found) != 1:
            names = ", ".join(changes)
            raise UsageError(
                f"{launch.name}: how its grid {launch.grid} follows {names} cannot be known; give "
                "the grid as a function of the meta-parameters, such as lambda meta: …"
            )
        made.append(found.pop())
    x, y, z = made
    return x, y, z


def extents(launch: KeptLaunch) -> set[int]:
    """Return the integers above 1 that a launch may cut: arguments, extents, sizes of tensors."""
    names, constants = (
        launch.src.fn.arg_names,
        {p.name for p in launch.src.fn.params if p.is_constexpr},
    )
    found = {
        value
        for name, value in zip(names, launch.values, strict=True)
        if type(value) is int and name not in constants
    }
    for tensor in launch.tensors(launch.values).values():
        found |= {int(extent) for extent in tensor.shape} | {tensor.numel()}
    return {size for size in found if size > 1}


def _blocks(launch: KeptLaunch) -> dict[str, int]:
    given = dict(zip(launch.src.fn.arg_names, launch.values, strict=True))
    return {
        p.name: given[p.name]
        for p in launch.src.fn.params
        if p.is_constexpr and type(given[p.name]) is int and given[p.name] > 0
    }


def _counts(
    count: int, sizes: set[int], blocks: Mapping[str, int], changes: Mapping[str, Any]
) -> Iterator[int]:
    """The numbers that a count of programs may become."""
    for name in blocks.keys() & changes.keys():
        for size in sizes:
            ours, new = -(-size // blocks[name]), -(-size // changes[name])
            if ours == count:
                yield new
            elif count % ours == 0 and _is_other_count(count // ours, name, sizes, blocks):
                yield new * (count // ours)


def _is_other_count(count: int, name: str, sizes: set[int], blocks: Mapping[str, int]) -> bool:
    """Whether a count may be the number of blocks of another meta-parameter in an extent."""
    return any(
        -(-size // block) == count
        for other, block in blocks.items()
        if other != name
        for size in sizes
    )


def related_names(text: str, axis: int, names: Mapping[str, object]) -> set[str]:
    """Return the meta-parameters by which programs of one axis of a grid are laid out.

    Args:
        text: the kernel's source.
        axis: 0, 1 or 2.
        names: the names of the meta-parameters.
    """
    tree = ast.parse(textwrap.dedent(text))
    assigned = [
        (targets, value)
        for node in ast.walk(tree)
        if (targets := _targets(node)) and (value := getattr(node, "value", None)) is not None
    ]
    tainted: set[str] = set()
    made_of: dict[str, set[str]] = {name: {name} for name in names}
    for _ in range(len(assigned) + 1):
        before = len(tainted), sum(map(len, made_of.values()))
        for targets, value in assigned:
            used = _names(value)
            if used & tainted or _asks_program(value, axis):
                tainted.update(targets)
            sources = set().union(*(made_of.get(name, set()) for name in used))
            for target in targets:
                made_of.setdefault(target, set()).update(sources)
        if before == (len(tainted), sum(map(len, made_of.values()))):
            break
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.FloorDiv | ast.Mod):
            for one, other in ((node.left, node.right), (node.right, node.left)):
                if _names(one) & tainted or _asks_program(one, axis):
                    found.update(*(made_of.get(name, set()) for name in _names(other) - tainted))
    return found


def _targets(node: ast.AST) -> Sequence[str]:
    if isinstance(node, ast.Assign):
        return [name for target in node.targets for name in _names(target)]
    if isinstance(node, ast.AugAssign | ast.AnnAssign):
        return sorted(_names(node.target))
    return ()


def _names(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _asks_program(node: ast.AST, axis: int) -> bool:
    """Whether an expression has `tl.program_id` of an axis."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and "program_id" in ast.unparse(call.func):
            given = [*call.args, *(word.value for word in call.keywords)]
            if any(isinstance(one, ast.Constant) and one.value == axis for one in given):
                return True
    return False
