"""The builder of the language's functions: it infers result types, checks ops and has options."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.dtypes import LanguageType
from tkdebug.compiler.ir import Builder, Module, Operation, Region, Type, Value
from tkdebug.compiler.ir.core import Attribute
from tkdebug.compiler.ir.op_view import OpName, op_name
from tkdebug.compiler.ir.types import shape_of
from tkdebug.compiler.ops.spec import Builtin, SemanticError
from tkdebug.compiler.tensor import tensor

# Upstream's limit on the elements of one tile.
MAX_TILE_ELEMS = 1 << 20


@dataclass(frozen=True)
class CompileOptions:
    """Options of one compilation that the language can see.

    Attributes:
        threads_per_warp: the warp size of the GPU that is launched on, or compiled for.
        arch: compute capability times ten, e.g. 90.
        sanitize_overflow: whether a kernel asserts that sums, differences and products of integers
            below 64 bits do not overflow.
        default_dot_input_precision: the precision of `tl.dot` for fp32 inputs.
        triton_version: the version of Triton whose language the kernel is written in.
    """

    num_warps: int = 4
    threads_per_warp: int = 32
    num_stages: int = 3
    num_ctas: int = 1
    arch: int = 90
    debug: bool = False
    sanitize_overflow: bool = False
    default_dot_input_precision: str = "tf32"
    triton_version: tuple[int, int] = (3, 9)
    extra: Mapping[str, object] = field(default_factory=dict)


class Emitter:
    """Emits checked ops at the current insertion point and location.

    The front end sets `call_function`, which inlines a jit function on given arguments at the
    current point, and `warning_registry`, by which each line of the kernel's module warns once.
    """

    def __init__(self, module: Module, options: CompileOptions) -> None:
        self.builder = Builder(module)
        self.options = options
        self.call_function: Callable[[Any, Sequence[Any]], Any] | None = None
        self.warning_registry: dict[Any, Any] = {}
        # True inside a jit function that an op applies to elements, such as that of tl.reduce.
        self.is_combining = False

    def is_before(self, *version: int) -> bool:
        """Whether the kernel is written in the language of a Triton older than `version`."""
        return self.options.triton_version < version

    def op(
        self,
        name: OpName,
        operands: Sequence[Value | tensor] = (),
        result_types: Sequence[Type] | None = None,
        regions: Sequence[Region] = (),
        **attributes: Attribute,
    ) -> Operation:
        """Emit op `name`; result types come from its type rule unless given."""
        view = OPS[op_name(name)]
        values = [v.value if isinstance(v, tensor) else v for v in operands]
        if result_types is None:
            result_types = view.infer([v.type for v in values], attributes)
            assert result_types is not None, f"{view.name} needs its result types"
        for type_ in result_types:
            shape = shape_of(type_)
            if math.prod(shape) > MAX_TILE_ELEMS:
                raise SemanticError(
                    f"a tile of shape {list(shape)} has {math.prod(shape)} elements; the limit is "
                    f"{MAX_TILE_ELEMS}"
                )
        op = self.builder.build(view, values, result_types, attributes, regions)
        view(op).verify()
        return op

    def call(self, function: object, arguments: Sequence[Any]) -> Any:
        """The result of a function of the language, or of a jit function, for `arguments`."""
        if isinstance(function, Builtin):
            return function.emit(self, *arguments)
        assert self.call_function is not None
        outer, self.is_combining = self.is_combining, True
        try:
            return self.call_function(function, arguments)
        finally:
            self.is_combining = outer

    def warn(self, message: str) -> None:
        """Warn at the line of the kernel that is being compiled."""
        location = self.builder.location
        assert location is not None, "warned outside of a kernel"
        place = location.frames[-1]
        warnings.warn_explicit(
            message, UserWarning, place.file, place.line, registry=self.warning_registry
        )

    def value(
        self,
        name: OpName,
        operands: Sequence[Value | tensor],
        type_: LanguageType,
        **attributes: Attribute,
    ) -> tensor:
        """Emit a one-result op and wrap its result under language type `type_`."""
        return tensor(self.op(name, operands, None, (), **attributes).result, type_)
