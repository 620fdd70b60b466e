"""Which of a tensor's strides the kernel's arguments are that its address is made with.

Reads the kernel's source: `b + k * sbk + n * sbn` multiplies by sbk and sbn. Says nothing where the
source cannot be had, or where the strides are used in the tensor's own order.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from tkdebug.compiler.faults.facts import AccessedTensor
from tkdebug.compiler.ir import Operation
from tkdebug.errors import Frame
from tkdebug.process.named_files import source_lines


def stride_hint(
    op: Operation, accessed: AccessedTensor, arguments: Mapping[str, object]
) -> str | None:
    """Such as "sbk=1 is b.stride(1), sbn=48 is b.stride(0)", for an access that went astray.

    Args:
        op: the access.
        accessed: the tensor that it left.
        arguments: of the launch, by name.
    """
    kernel = _kernel(op.location.frames[0])
    if kernel is None or accessed.name is None or len(accessed.shape) < 2:
        return None
    strides = accessed.strides
    axes: list[int] = []
    facts: list[str] = []
    is_odd = False
    line = op.location.frames[0].line
    factors = list(_factors(kernel, accessed.name, line)) or _factors(kernel, accessed.name)
    for factor in dict.fromkeys(factors):
        value = arguments.get(factor)
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        if value in strides:
            axes.append(strides.index(value))
            facts.append(f"{factor}={value} is {accessed.name}.stride({axes[-1]})")
        elif "stride" in factor.lower():
            is_odd = True
            facts.append(f"{factor}={value} is none of {accessed.name}'s strides {strides}")
    return ", ".join(facts) if is_odd or axes != sorted(axes) else None


def _kernel(place: Frame) -> ast.FunctionDef | None:
    """The function around a place; the innermost of its name."""
    try:
        tree = ast.parse("".join(source_lines(place.file)))
    except SyntaxError:
        return None
    found = None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == place.function:
            if node.lineno <= place.line <= (node.end_lineno or node.lineno):
                found = node
    return found


def _factors(kernel: ast.FunctionDef, tensor: str, line: int | None = None) -> Iterator[str]:
    """The names that indices are multiplied by in sums that begin with `tensor`, in order.

    Those of the statement at `line` alone, if one is given.
    """
    pointers = {tensor}
    places = [
        node for node in ast.walk(kernel) if isinstance(node, ast.Assign | ast.AugAssign | ast.Call)
    ]
    places.sort(key=lambda node: (node.lineno, node.col_offset))
    for node in places:
        if line is not None and not node.lineno <= line <= (node.end_lineno or node.lineno):
            continue
        for value in node.args if isinstance(node, ast.Call) else [node.value]:
            terms = list(_terms(value))
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AugAssign):
                terms.append(node.target)
            if not any(isinstance(term, ast.Name) and term.id in pointers for term in terms):
                continue
            pointers.update(target.id for target in targets if isinstance(target, ast.Name))
            for term in terms:
                yield from _names_of_product(term)
                if isinstance(term, ast.Name) and term.id not in pointers:
                    for part in _offset(places, term.id, node.lineno):
                        yield from _names_of_product(part)


def _offset(places: Sequence[ast.stmt | ast.expr], name: str, line: int) -> Iterator[ast.expr]:
    """The terms of the sum that a name stands for, which it was given last before `line`."""
    given = [
        node.value
        for node in places
        if isinstance(node, ast.Assign)
        and node.lineno < line
        and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    ]
    if given and isinstance(given[-1], ast.BinOp) and isinstance(given[-1].op, ast.Add):
        yield from _terms(given[-1])


def _terms(value: ast.expr) -> Iterator[ast.expr]:
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        yield from _terms(value.left)
        yield from _terms(value.right)
    else:
        yield value


def _names_of_product(term: ast.expr) -> Iterator[str]:
    if isinstance(term, ast.BinOp) and isinstance(term.op, ast.Mult):
        for factor in (term.left, term.right):
            if isinstance(factor, ast.Name):
                yield factor.id
            else:
                yield from _names_of_product(factor)
