"""The script that is begun with: the caught launches with all of their data, nothing shrunk."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor

from tkdebug.causes.comparison import tolerances_of
from tkdebug.errors import TkError, UnsupportedError
from tkdebug.interpreter.memory.host_views import host_view
from tkdebug.reproduction.capture import Caught, Compared, Made
from tkdebug.reproduction.code import Functions, expression_with, host_functions
from tkdebug.reproduction.script import Argument, Check, Launch, Memory, Ref, Script, View
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor
from tkdebug.runtime.arguments.tensor_stand_ins import TensorWrapper

_DESCRIPTOR = "from triton.tools.tensor_descriptor import TensorDescriptor"
_KEYWORDS = {"torch", "triton", "tl", "saved", "expected"}


@dataclass(slots=True)
class _Tensors:
    """Allocations and views of a script, looked up by their addresses in the caught launches."""

    memories: dict[str, Memory] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    _by_address: dict[tuple[int, torch.dtype], str] = field(default_factory=dict)

    def name(self, wanted: str) -> str:
        """Return a free name like the wanted one, which is taken from then on."""
        base = re.sub(r"(_ptr|_ptrs|_pointer)$", "", wanted.lower()) or "x"
        name, number = base, 2
        while name in self.taken or name in _KEYWORDS:
            name, number = f"{base}_{number}", number + 1
        self.taken.add(name)
        return name

    def known(self, tensor: Tensor) -> str | None:
        """Return the name of a tensor's allocation, None if no launch has it."""
        return self._by_address.get((tensor.untyped_storage().data_ptr(), tensor.dtype))

    def add(self, tensor: Tensor, wanted: str) -> str:
        """Return the name of a tensor's view; a new one is added, with its allocation."""
        with torch.no_grad():
            tensor = host_view(tensor.detach()).cpu()
            memory = self.known(tensor)
            shape, strides = tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride()))
            if memory is not None:
                view = View(memory, shape, strides, int(tensor.storage_offset()))
                same = (name for name, known in self.views.items() if known == view)
                found = next(same, None)
                if found is not None:
                    return found
            name = self.name(wanted)
            if memory is None:
                memory = self.name(f"{name}_memory")
                storage = tensor.untyped_storage()
                size = storage.nbytes() // tensor.element_size()
                flat = torch.empty(0, dtype=tensor.dtype).set_(storage, 0, (size,), (1,))
                self.memories[memory] = Memory(memory, tensor.dtype, size, "saved", flat)
                self._by_address[storage.data_ptr(), tensor.dtype] = memory
            self.views[name] = View(memory, shape, strides, int(tensor.storage_offset()))
            return name


def begun(caught: Caught) -> Script:
    """Return the script of caught launches, unshrunk.

    Raises:
        UnsupportedError: something of it cannot be written.
    """
    functions, tensors = Functions(), _Tensors()
    launches = tuple(_launch(made, functions, tensors) for made in caught.launches)
    if any("TensorDescriptor(" in ref for ref in _descriptors(launches)):
        functions.imports["TensorDescriptor"] = _DESCRIPTOR
    script = Script(
        tuple(functions.nodes),
        functions.imports,
        functions.constants,
        tensors.memories,
        tensors.views,
        launches,
        decorators=functions.decorators,
    )
    return script if caught.compared is None else _compared(script, caught.compared, tensors)


def _descriptors(launches: tuple[Launch, ...]) -> list[str]:
    found = []
    for launch in launches:
        found += [one.text for one in launch.arguments.values() if isinstance(one, Ref)]
    return found


def _launch(made: Made, functions: Functions, tensors: _Tensors) -> Launch:
    name = functions.add(made.function)
    tensors.taken.update(node.name for node in functions.nodes)
    arguments: dict[str, Argument] = {}
    named: set[str] = set()
    variadic = ""
    for parameter, value in zip(made.function.params, made.values, strict=True):
        arguments[parameter.name] = _argument(parameter.name, value, functions, tensors)
        if parameter.is_constexpr or parameter.is_keyword_only or named:
            named.add(parameter.name)
        if parameter.is_variadic:
            variadic = parameter.name
    if variadic:  # what is before it has to be given by its place
        order = list(arguments)
        named -= set(order[: order.index(variadic) + 1])
    return Launch(name, made.grid, arguments, frozenset(named), made.options, variadic)


def _argument(name: str, value: Any, functions: Functions, tensors: _Tensors) -> Argument:
    if isinstance(value, Tensor):
        return Ref(tensors.add(value, name))
    if isinstance(value, tuple):
        return tuple(
            _argument(f"{name}_{place}", one, functions, tensors) for place, one in enumerate(value)
        )
    if isinstance(value, TensorDescriptor):
        base = tensors.add(_bare(value.base), name)
        of_it = (value.shape, value.strides, value.block_shape)
        shape, strides, block = (list(map(int, one)) for one in of_it)
        padding = f', "{value.padding}"' if value.padding != "zero" else ""
        return Ref(base, f"TensorDescriptor({{}}, {shape}, {strides}, {block}{padding})")
    if isinstance(value, TensorWrapper):
        dtype = functions.argument(value.dtype)
        text = getattr(dtype, "text", dtype)
        return Ref(tensors.add(_bare(value), name), f"triton.reinterpret({{}}, {text})")
    return functions.argument(value)


def _bare(value: Any) -> Tensor:
    while not isinstance(value, Tensor):
        value = value.base
    return value


def _compared(script: Script, compared: Compared, tensors: _Tensors) -> Script:
    """Return the script with the comparison at its end."""
    comparison = compared.comparison
    view = tensors.add(compared.written, "out")
    rtol, atol = comparison.rtol, comparison.atol
    usual = tolerances_of(comparison.actual, comparison.expected)
    tolerances = "" if (rtol, atol) == usual else f", rtol={rtol!r}, atol={atol!r}"
    if comparison.equal_nan:
        tolerances += ", equal_nan=True"
    reference = _reference(compared, tensors)
    if reference is not None:
        text, reads, setup = reference
        dtype = comparison.actual.dtype
        cast = f".to({dtype})" if dtype != compared.written.dtype else ""
        script = replace(script, memories=tensors.memories, views=tensors.views, setup=setup)
        return replace(script, check=Check(view, text, tolerances, None, reads | {view}, cast))
    return saved_check(script, compared, tensors.memories, tensors.views, view, tolerances)


def saved_check(
    script: Script,
    compared: Compared,
    memories: Mapping[str, Memory],
    views: Mapping[str, View],
    view: str,
    tolerances: str,
) -> Script:
    """Return the script with a check that compares the most wrong element with a number."""
    comparison = compared.comparison
    expected = comparison.value(comparison.expected)
    dtype = compared.written.dtype
    text = f'torch.tensor({expected!r}, dtype={dtype}, device="cuda")'
    if isinstance(expected, float) and expected in (float("inf"), -float("inf")):
        text = f'torch.tensor(float("{expected}"), dtype={dtype}, device="cuda")'
    if expected != expected:
        text = f'torch.tensor(float("nan"), dtype={dtype}, device="cuda")'
    check = Check(view, text, tolerances, comparison.index, frozenset({view}))
    return replace(script, memories=dict(memories), views=dict(views), check=check, setup=())


def without_reference(script: Script, caught: Caught) -> Script:
    """Return the script with the expected number in place of an expression."""
    assert caught.compared is not None
    assert script.check is not None
    check = script.check
    return saved_check(
        script, caught.compared, script.memories, script.views, check.view, check.tolerances
    )


def _reference(
    compared: Compared, tensors: _Tensors
) -> tuple[str, frozenset[str], tuple[str, ...]] | None:
    """Return the expression of the expected tensor in the names of the script, or None.

    Returns:
        The expression, the tensors that it reads, and the functions that it calls.
    """
    if not compared.reference:
        return None
    functions: tuple[str, ...] = ()
    renamed: dict[str, str] = {}
    reads: set[str] = set()
    for name, value in compared.names.items():
        if isinstance(value, Tensor):
            if tensors.known(value) is None:
                return None
            renamed[name] = tensors.add(value, name)
            reads.add(renamed[name])
        elif isinstance(value, ModuleType) and value.__name__.partition(".")[0] == "torch":
            renamed[name] = value.__name__
        elif isinstance(value, bool | int | float | torch.dtype):
            renamed[name] = str(value) if isinstance(value, torch.dtype) else repr(value)
        elif isinstance(value, FunctionType):
            try:
                functions += host_functions(value)
            except TkError:  # it is no function of torch alone
                return None
        else:
            return None
    text = ast.unparse(expression_with(ast.parse(compared.reference, mode="eval").body, renamed))
    return text, frozenset(reads), tuple(dict.fromkeys(functions))


def refuse_large(script: Script, most_bytes: int) -> None:
    """Refuse a script whose data no short one can hold.

    Raises:
        UnsupportedError: it has more.
    """
    size = sum(len(memory.data) * memory.dtype.itemsize for memory in script.used_memories)
    if size > most_bytes:
        raise UnsupportedError(f"its tensors have {size:,} bytes, more than {most_bytes:,}")
