"""Elements by the names that the script has for the tensors of a launch."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torch import Tensor

from tkdebug.debugger.elements import Element, argument_named, element_of, parse_element
from tkdebug.debugger.values import Constant, Pointers
from tkdebug.errors import UsageError

if TYPE_CHECKING:
    from tkdebug.debugger.inspection import Inspection


def named_by_script(inspection: Inspection, text: str, frame: int) -> str:
    """`text`, with the argument's name for a tensor of the script that was passed as it.

    Args:
        inspection: of the stop.
        text: an element, `out[3, 17]`.
        frame: in which the name is looked for, 0 for the innermost.

    Raises:
        UsageError: it names pointers; the message says into what.
    """
    name, bracket, index = text.strip().partition("[")
    arguments = inspection.launch.arguments
    if not bracket or argument_named(name, arguments) is not None:
        return text
    try:
        found = inspection.ask(name, frame)
    except UsageError:
        return text
    if isinstance(found, Pointers) and found.name is not None:
        raise UsageError(
            f"`{name}` holds pointers into `{found.name}`: name an element of that, such as "
            f"{found.name}{[0] * (found.tensor.dim() if found.tensor is not None else 1)}"
        )
    found = found.value if isinstance(found, Constant) else found
    same = (other for other, passed in arguments.items() if passed is found)
    meant = next(same, None) if isinstance(found, Tensor) else None
    return text if meant is None else f"{meant}[{index}"


def find_element(inspection: Inspection, text: str, frame: int = 0) -> Element:
    """The element that `text` names: of an argument, or of a tensor that the script can name.

    Args:
        inspection: of the stop.
        text: `out[3, 17]`, or `outs[2][3, 17]` of a tensor that the kernel gets the address of.
        frame: in which names are looked for, 0 for the innermost.

    Raises:
        UsageError: it names none; the message says what there is.
    """
    arguments = inspection.launch.arguments
    named = named_by_script(inspection, text, frame)
    try:
        return parse_element(named, arguments)
    except UsageError:
        found = _of_script(inspection, text.strip(), frame)
        if found is None:
            raise
        return found


def _of_script(inspection: Inspection, text: str, frame: int) -> Element | None:
    """An element of a tensor of the script that is no argument; None for anything else."""
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(node, ast.Subscript):
        return None
    names = [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
    arguments = inspection.launch.arguments
    if isinstance(node.value, ast.Name) and argument_named(node.value.id, arguments) is not None:
        return None
    if any(names_variable(inspection, name, frame) for name in names):
        return None  # a tile of the kernel's
    base = ast.unparse(node.value)
    try:
        tensor = inspection.evaluate(base, frame)
    except UsageError:
        return None
    return element_of(base, tensor, node.slice, text) if isinstance(tensor, Tensor) else None


def names_variable(inspection: Inspection, text: str, frame: int) -> bool:
    """Whether `x[3]` is of a variable `x` of the kernel, which goes before the argument `x_ptr`."""
    name = text.partition("[")[0].strip()
    if name in inspection.launch.arguments or frame >= len(inspection.marks):
        return False
    mark = inspection.marks[frame]
    known = (*mark.names, *mark.missing, *inspection.code.variables_of(mark.activation))
    return name in known
