"""A script that makes some tensors, launches kernels on them, and compares: as data, and its text.

Invariant: a script imports torch and triton alone, and its data never changes: each step of
shrinking makes another script.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Union

import torch
from torch import Tensor

DATA_SUFFIX = ".safetensors"
# In the order of a safetensors file: without holes each is aligned if the widest come first.
_NAMES_IN_FILES = {
    torch.float64: "F64",
    torch.int64: "I64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Memory:
    """An allocation.

    Attributes:
        size: in elements.
        fill: how it is made: a function of torch, "listed" or "saved".
        value: the value that `full` takes.
        data: its elements, if it is listed or saved; what they were in the script otherwise.
    """

    name: str
    dtype: torch.dtype
    size: int
    fill: str
    data: Tensor
    value: float | int | bool = 0


@dataclass(frozen=True, slots=True)
class View:
    """A tensor: its place in an allocation, in elements."""

    memory: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def span(self) -> int:
        """The number of elements of its allocation up to its last one."""
        if 0 in self.shape:
            return self.offset
        pairs = zip(self.shape, self.strides, strict=True)
        return self.offset + 1 + sum((extent - 1) * stride for extent, stride in pairs)

    @property
    def is_contiguous(self) -> bool:
        """Whether its elements follow each other."""
        return self.strides == contiguous(self.shape)


@dataclass(frozen=True, slots=True)
class Ref:
    """An argument that is a tensor; `text` has {} for its name, such as a descriptor has."""

    view: str
    text: str = "{}"


@dataclass(frozen=True, slots=True)
class Text:
    """An argument that is written as it stands: a type, or a function."""

    text: str


Argument = Union[Ref, Text, int, float, bool, str, None, "tuple[Argument, ...]"]


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch of a function.

    Attributes:
        arguments: by parameter, in their order.
        named: parameters that are given by name.
        options: such as num_warps.
    """

    function: str
    grid: tuple[int, ...]
    arguments: Mapping[str, Argument]
    named: frozenset[str]
    options: Mapping[str, Any]
    variadic: str = ""


@dataclass(frozen=True, slots=True)
class Check:
    """The comparison at the end: a tensor, and an expression for what it should be.

    Attributes:
        element: the index of the only element that is compared; None for all.
        cast: a call on the tensor before it, such as `.float()`.
        reads: the tensors that the expression reads.
    """

    view: str
    expected: str
    tolerances: str = ""
    element: tuple[int, ...] | None = None
    reads: frozenset[str] = frozenset()
    cast: str = ""

    @property
    def text(self) -> str:
        """The statement that compares."""
        index = "" if self.element is None else f"[{', '.join(map(str, self.element))}]"
        actual = f"{self.view}{index}{self.cast}"
        return f"torch.testing.assert_close({actual}, {self.expected}{self.tolerances})"


@dataclass(frozen=True)
class Script:
    """A script.

    Attributes:
        functions: the kernels, and the functions that they call; callees before their callers.
        imports: statements by the name that each binds, besides those that all scripts have.
        constants: texts of globals by their names.
        setup: functions that the comparison calls.
        decorators: the decorators of functions other than `triton.jit`, by function.
    """

    functions: tuple[ast.FunctionDef, ...]
    imports: Mapping[str, str]
    constants: Mapping[str, str]
    memories: Mapping[str, Memory]
    views: Mapping[str, View]
    launches: tuple[Launch, ...]
    check: Check | None = None
    setup: tuple[str, ...] = ()
    decorators: Mapping[str, str] = ()  # type: ignore[assignment]

    @cached_property
    def used_functions(self) -> tuple[ast.FunctionDef, ...]:
        """The functions that launches lead to, callees first."""
        by_name = {node.name: node for node in self.functions}
        used: dict[str, None] = {}

        def add(name: str) -> None:
            if name in by_name and name not in used:
                used[name] = None
                for inner in sorted(names_in(by_name[name])):
                    add(inner)

        for launch in self.launches:
            add(launch.function)
            for argument in launch.arguments.values():
                for text in _texts(argument):
                    add(text)
        return tuple(node for node in self.functions if node.name in used)

    @cached_property
    def used_views(self) -> frozenset[str]:
        """The tensors that a launch or the comparison names."""
        refs = {
            ref.view
            for launch in self.launches
            for argument in launch.arguments.values()
            for ref in refs_in(argument)
        }
        return frozenset(refs) | (self.check.reads if self.check else set())

    @cached_property
    def used_memories(self) -> tuple[Memory, ...]:
        """The allocations of the used tensors."""
        names = {self.views[name].memory for name in self.used_views}
        return tuple(memory for memory in self.memories.values() if memory.name in names)

    @cached_property
    def saved(self) -> tuple[Memory, ...]:
        """The allocations that a file holds, the widest elements first."""
        found = [memory for memory in self.used_memories if memory.fill == "saved"]
        return tuple(sorted(found, key=lambda one: -one.dtype.itemsize))

    @property
    def elements(self) -> int:
        """The number of elements of all its allocations."""
        return sum(memory.size for memory in self.used_memories)

    @property
    def statements(self) -> int:
        """The number of statements in its functions."""
        return sum(
            isinstance(node, ast.stmt) for one in self.used_functions for node in ast.walk(one)
        ) - len(self.used_functions)

    def text(self, head: str = "", reads_file: bool = True) -> str:
        """Return the script.

        Args:
            head: its first lines, comments.
            reads_file: whether saved tensors are read from the file beside it; else they are parts
                of the name `saved`, which the script does not bind.
        """
        functions = [self._function_text(node) for node in self.used_functions]
        used = set().union(*(names_in(node) for node in self.used_functions))
        used |= {text for launch in self.launches for text in launch_texts(launch)}
        lines = [head] if head else []
        lines += ["import torch", "import triton", "import triton.language as tl"]
        lines += [text for name, text in self.imports.items() if name in used]
        constants = [f"{name} = {text}" for name, text in self.constants.items() if name in used]
        if constants:
            lines += ["", *constants]
        for text in (*functions, *self.setup):
            lines += ["", "", text]
        lines += ["", "", *self._tensor_lines(reads_file)]
        lines += [_launch_text(launch) for launch in self.launches]
        lines += [self.check.text] if self.check else []
        return "\n".join(lines) + "\n"

    def _function_text(self, node: ast.FunctionDef) -> str:
        decorator = dict(self.decorators).get(node.name, "@triton.jit")
        return f"{decorator}\n{ast.unparse(node)}"

    def _tensor_lines(self, reads_file: bool) -> Iterator[str]:
        places, size, head = _layout(self.saved)
        if self.saved and reads_file:
            whole = len(head) + size
            yield (
                f'saved = torch.from_file(__file__[:-3] + "{DATA_SUFFIX}", size={whole}, '
                f"dtype=torch.uint8)[{len(head)}:]"
            )
        if any(memory.fill in ("randn", "randint") for memory in self.used_memories):
            yield "torch.manual_seed(0)"
        for memory in self.used_memories:
            views = {n: v for n, v in self.views.items() if v.memory == memory.name}
            views = {n: v for n, v in views.items() if n in self.used_views}
            ((name, view), *others) = views.items()
            is_whole = (
                view.is_contiguous and not view.offset and math.prod(view.shape) == memory.size
            )
            if not others and is_whole:
                yield f"{name} = {_made(memory, view.shape, places)}"
                continue
            whole_text = _made(memory, (memory.size,), places)
            if not others:
                yield f"{name} = {whole_text}{_strided(view)}"
                continue
            yield f"{memory.name} = {whole_text}"
            for name, view in views.items():
                yield f"{name} = {memory.name}{_strided(view)}"

    def data(self) -> bytes:
        """Return the contents of the file beside it, in the format safetensors."""
        _, _, head = _layout(self.saved)
        return head + b"".join(_bytes_of(memory.data) for memory in self.saved)

    def saved_bytes(self) -> Tensor:
        """Return the bytes of all saved tensors, which the text calls `saved`."""
        held = bytearray(b"".join(_bytes_of(memory.data) for memory in self.saved))
        return torch.frombuffer(held or bytearray(1), dtype=torch.uint8).clone()

    def with_memory(self, memory: Memory) -> Script:
        """Return the script with one allocation made in another way."""
        return replace(self, memories={**self.memories, memory.name: memory})


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def names_in(node: ast.AST) -> set[str]:
    """Return the names that code reads."""
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def refs_in(argument: Argument) -> Iterator[Ref]:
    """Yield the tensors of an argument."""
    if isinstance(argument, Ref):
        yield argument
    elif isinstance(argument, tuple):
        for one in argument:
            yield from refs_in(one)


def _texts(argument: Argument) -> Iterator[str]:
    if isinstance(argument, Text):
        yield argument.text
    elif isinstance(argument, tuple):
        for one in argument:
            yield from _texts(one)


def launch_texts(launch: Launch) -> Iterator[str]:
    """Yield the names in a launch's arguments, other than its tensors, such as types."""
    for argument in launch.arguments.values():
        for text in _texts(argument):
            yield text.partition(".")[0]
        for ref in refs_in(argument):
            yield ref.text.partition("(")[0]


def argument_text(argument: Argument) -> str:
    """Return an argument as it is written."""
    match argument:
        case Ref(view, text):
            return text.format(view)
        case Text(text):
            return text
        case tuple():
            inner = ", ".join(map(argument_text, argument))
            return f"({inner},)" if len(argument) == 1 else f"({inner})"
        case float() if not math.isfinite(argument):
            return f'float("{argument}")'
        case _:
            return repr(argument)


def _launch_text(launch: Launch) -> str:
    words: list[str] = []
    for name, argument in launch.arguments.items():
        if name == launch.variadic:
            assert isinstance(argument, tuple)
            words += map(argument_text, argument)
        else:
            by_name = f"{name}=" if name in launch.named else ""
            words.append(f"{by_name}{argument_text(argument)}")
    words += [f"{name}={value!r}" for name, value in launch.options.items()]
    grid = launch.grid
    while len(grid) > 1 and grid[-1] == 1:
        grid = grid[:-1]
    return f"{launch.function}[{argument_text(grid)}]({', '.join(words)})"


def _strided(view: View) -> str:
    offset = f", {view.offset}" if view.offset else ""
    return f".as_strided({argument_text(view.shape)}, {argument_text(view.strides)}{offset})"


def _made(memory: Memory, shape: tuple[int, ...], places: Mapping[str, tuple[int, int]]) -> str:
    """Return the expression that makes an allocation of some shape."""
    dtype = f", dtype={memory.dtype}"
    shown = argument_text(shape)
    reshaped = "" if len(shape) == 1 else f".reshape({shown})"
    short = "" if memory.dtype is torch.float32 else dtype
    match memory.fill:
        case "empty" | "zeros" | "ones":
            return f'torch.{memory.fill}({shown}{short}, device="cuda")'
        case "full":
            return f'torch.full({shown}, {argument_text(memory.value)}{dtype}, device="cuda")'
        case "arange":
            return f'torch.arange({memory.size}{dtype}, device="cuda"){reshaped}'
        case "randn":
            made = "" if memory.dtype is torch.float32 else f".to({memory.dtype})"
            # On the CPU: each device draws other numbers.
            return f"torch.randn({shown}){made}.cuda()"
        case "listed":
            values = ", ".join(argument_text(one) for one in memory.data.tolist())
            return f'torch.tensor([{values}]{dtype}, device="cuda"){reshaped}'
        case _:
            first, last = places[memory.name]
            return f"saved[{first}:{last}].view({memory.dtype}){reshaped}.cuda()"


def _layout(saved: tuple[Memory, ...]) -> tuple[dict[str, tuple[int, int]], int, bytes]:
    """Return the byte ranges of saved tensors, their whole size in bytes, and the file's head."""
    places, end = {}, 0
    table = {}
    for memory in saved:
        begin, end = end, end + memory.size * memory.dtype.itemsize
        places[memory.name] = begin, end
        kind = _NAMES_IN_FILES.get(memory.dtype, "U8")
        shape = [memory.size if kind != "U8" else end - begin]
        table[memory.name] = {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(table).encode()
    text += b" " * (-(len(text) + 8) % _ALIGNMENT)
    return places, end, len(text).to_bytes(8, "little") + text


def _bytes_of(data: Tensor) -> bytes:
    with torch.no_grad():
        return bytes(data.contiguous().view(torch.uint8).numpy().tobytes())
