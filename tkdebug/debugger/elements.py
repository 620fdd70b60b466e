"""Elements of a launch's tensors, as users write them: `out[3, 17]`.

A tensor is named by the kernel's argument, or by a variable of the script that was passed as it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tkdebug.debugger.values import Constant, Pointers
from tkdebug.errors import UsageError
from tkdebug.interpreter.memory.buffers import Buffer

if TYPE_CHECKING:
    from tkdebug.debugger.inspection import Inspection
    from tkdebug.interpreter.memory.observed_access import ObservedAccess


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a tensor.

    Attributes:
        name: the name of the argument, or the script's name for the tensor.
        index: along each dimension of the tensor as it was passed.
        storage_key: the storage key of its allocation.
        byte: the place of its first byte there.
        itemsize: its size in bytes.
        tensor: the tensor.
    """

    name: str
    index: tuple[int, ...]
    storage_key: int
    byte: int
    itemsize: int
    tensor: Tensor

    @property
    def offset_elems(self) -> int:
        """The offset from the tensor's first element."""
        strides = self.tensor.stride()
        return sum(at * stride for at, stride in zip(self.index, strides, strict=True))

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.index))}]"

    def touches(self, access: ObservedAccess) -> list[int]:
        """The programs that access it; [] for none."""
        if access.buffer.storage_key != self.storage_key:
            return []
        first, last = (
            self.byte // access.itemsize,
            (self.byte + self.itemsize - 1) // access.itemsize,
        )
        touched = access.touch()
        hit = (touched.places >= first) & (touched.places <= last)
        if not bool(hit.any()):
            return []
        found: list[int] = torch.unique(touched.programs[hit]).tolist()
        return found


def argument_named(name: str, tensors: Iterable[str]) -> str | None:
    """The argument that people call `name`: itself, `name_ptr` or `name_desc`; None for none."""
    known = list(tensors)
    if name in known:
        return name
    return next((each for each in known if each in (f"{name}_ptr", f"{name}_desc")), None)


def parse_element(text: str, arguments: Mapping[str, Any]) -> Element:
    """The element that `text` names.

    Args:
        text: an element such as `out[3, 17]`; the indices are numbers, negative ones count from the
            end.
        arguments: the arguments of the launch, by name.

    Raises:
        UsageError: it names none; the message lists what there is.
    """
    shown = text.strip()
    usage = "expected an element of a tensor argument, such as out[3, 17]"
    if shown:
        usage = f"{shown}: {usage}"
    try:
        node = ast.parse(shown, mode="eval").body
    except SyntaxError:
        raise UsageError(usage) from None
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
        raise UsageError(usage)
    tensors = {name: tensor_in(value) for name, value in arguments.items()}
    tensors = {name: value for name, value in tensors.items() if value is not None}
    name = argument_named(node.value.id, tensors)
    if name is None:
        known = ", ".join(tensors) or "none"
        raise UsageError(
            f"{shown}: `{node.value.id}` is not a tensor argument (there are: {known})"
        )
    return element_of(name, tensors[name], node.slice, shown)


def element_of(name: str, tensor: Tensor, indices: ast.expr, shown: str) -> Element:
    """The element of a tensor at some indices.

    Args:
        name: the name of the tensor.
        tensor: the tensor.
        indices: the indices as they were written.
        shown: the whole text, for messages.

    Raises:
        UsageError: it has no such element.
    """
    try:
        index = ast.literal_eval(indices)
    except ValueError:
        raise UsageError(f"{shown}: the indices must be numbers") from None
    index = index if isinstance(index, tuple) else (index,)
    shape = tuple(tensor.shape)
    if len(index) != len(shape) or not all(isinstance(place, int) for place in index):
        raise UsageError(
            f"{shown}: `{name}` has shape {list(shape)}, so "
            f"{'1 index is' if len(shape) == 1 else f'{len(shape)} indices are'} expected"
        )
    full = tuple(
        place + extent if place < 0 else place for place, extent in zip(index, shape, strict=True)
    )
    if not all(0 <= place < extent for place, extent in zip(full, shape, strict=True)):
        raise UsageError(f"{shown}: outside of `{name}`, whose shape is {list(shape)}")
    buffer = Buffer(tensor.detach(), name)
    place = buffer.storage_offset + sum(
        at * stride for at, stride in zip(full, tensor.stride(), strict=True)
    )
    itemsize = buffer.itemsize
    return Element(name, full, buffer.storage_key, place * itemsize, itemsize, tensor)


def tensor_in(value: Any) -> Any:
    """Return the torch tensor in an argument, or None if there is none."""
    inner = getattr(value, "base", None)
    if isinstance(inner, torch.Tensor) and not isinstance(value, torch.Tensor):
        return inner
    return value if isinstance(value, torch.Tensor) else None


def named_by_script(inspection: Inspection, text: str, frame: int) -> str:
    """Return `text` with the name of the kernel's argument in place of the script's name for it.

    Args:
        inspection: the inspection of the stop.
        text: an element, `out[3, 17]`.
        frame: the frame in which the name is looked for, 0 for the innermost.

    Raises:
        UsageError: it names pointers; the message names the tensor that they point into.
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
        inspection: the inspection of the stop.
        text: `out[3, 17]`, or `outs[2][3, 17]` of a tensor that the kernel gets the address of.
        frame: the frame in which names are looked for, 0 for the innermost.

    Raises:
        UsageError: it names none; the message lists what there is.
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
    """Whether `x[3]` names a variable `x` of the kernel, which goes before the argument `x_ptr`."""
    name = text.partition("[")[0].strip()
    if name in inspection.launch.arguments or frame >= len(inspection.marks):
        return False
    mark = inspection.marks[frame]
    known = (*mark.names, *mark.missing, *inspection.code.variables_of(mark.activation))
    return name in known
