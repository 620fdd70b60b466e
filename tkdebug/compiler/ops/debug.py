"""Asserts, prints, barriers and hints."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.describe import as_given
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ops import conversion, operators
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.spec import Builtin, SemanticError
from tkdebug.compiler.tensor import is_runtime, tensor
from tkdebug.terminal.text import visible_line

# Whether `static_print` prints: of several compiles of the same source, only one does.
STATIC_PRINTS: ContextVar[bool] = ContextVar("tkdebug_static_prints", default=True)


def _emit_device_assert(emit: Emitter, cond: object, msg: object = "", mask: object = None) -> None:
    """Report a fault where `cond` is false (and `mask`, if given, true)."""
    if not isinstance(cond, tensor) and cond:
        return
    value = conversion.cast(emit, conversion.to_tensor(emit, cond), dt.int1)
    operands = [value]
    if mask is not None:
        limit = conversion.cast(emit, conversion.to_tensor(emit, mask), dt.int1)
        operands = list(conversion.broadcast_pair(emit, value, limit))
    # In one line: a message's newline would otherwise break our reports, and the driver's.
    emit.op(tt.Assert, operands, message=visible_line(str(msg or "")))


def _emit_static_assert(emit: Emitter, cond: object, msg: object = "") -> None:
    """Fail the compilation if the constant `cond` is false."""
    if is_runtime(cond):
        raise SemanticError(
            f"static_assert needs a constant, got {as_given(cond)}; use tl.device_assert"
        )
    if not cond:
        text = visible_line(str(msg or ""))
        raise SemanticError("static assertion failed" + (f": {text}" if text else ""))


def _emit_static_print(emit: Emitter, *values: object, **keywords: object) -> None:
    """Print at compile time; a run-time value as its type and shape: int32[constexpr[128]]."""
    if STATIC_PRINTS.get():
        print(*map(_shown, values), **keywords)  # type: ignore[call-overload]


def _shown(value: object) -> object:
    """A value as upstream's `static_print` shows it."""
    if isinstance(value, tensor):
        sizes = ", ".join(f"constexpr[{size}]" for size in value.shape)
        return f"{value.type.scalar}[{sizes}]"
    return [str(_shown(one)) for one in value] if isinstance(value, tuple) else value


def _emit_device_print(emit: Emitter, prefix: object, *args: object, hex: object = False) -> None:
    """Print `prefix` and the values of each element: `pid (0, 0, 0) idx (  0) x: 0`.

    A tile of more than 256 elements (`TKDEBUG_PRINT_ELEMENTS`) is summarised in one line, unless
    `hex` is true. With `hex`, floats are printed as by `%a`: 0x1.8p+1.
    """
    if not isinstance(prefix, str):
        raise SemanticError(f"device_print: the first argument must be a string, got {prefix!r}")
    values = [conversion.to_tensor(emit, value) for value in args]
    signed = tuple(
        isinstance(v.type.scalar, dt.dtype) and v.type.scalar.is_int_signed() for v in values
    )
    emit.op(tt.Print, values, prefix=_spaced(prefix), hex=bool(hex), signed=signed)


def _spaced(prefix: str) -> str:
    """The prefix between a space and a colon, as upstream prints it: ` x: `."""
    prefix = prefix if prefix.endswith(" ") else prefix + " "
    prefix = prefix if prefix.endswith(": ") else prefix[:-1] + ": "
    return " " + prefix if len(prefix) > 2 and not prefix.startswith(" ") else prefix


def _emit_debug_barrier(emit: Emitter) -> None:
    """Make all threads of the program wait for each other."""
    emit.op(tt.Barrier)


def _emit_expect_zero(emit: Emitter, x: object, mask: object) -> tensor:
    """`x` itself; a kernel compiled for debugging asserts that it is 0 where `mask` holds."""
    value = conversion.to_tensor(emit, x)
    limit = conversion.cast(emit, conversion.to_tensor(emit, mask), dt.int1)
    if emit.options.debug:
        is_right = operators.binary(
            emit, "or", operators.compare(emit, "eq", value, 0), operators.logical_not(emit, limit)
        )
        emit.op(tt.Assert, [is_right], message="expect_zero expected x == 0 where mask is true")
    return value


def _emit_assume(emit: Emitter, cond: object) -> None:
    """Let the compiler assume that `cond` holds."""
    if isinstance(cond, tensor):
        emit.op(tt.Assume, [operators.to_condition(emit, cond)])
    elif not cond:
        raise SemanticError("assume: the condition is false at compile time")


def _hint(name: str, kind: str, doc: str) -> Builtin:
    def emit_hint(emit: Emitter, input: object, values: object) -> Any:
        assumed: list[int] = []
        for value in values if isinstance(values, tuple | list) else [values]:
            if not isinstance(value, int):
                raise SemanticError(f"{name}: values must be constant ints, got {as_given(value)}")
            assumed.append(value)
        if not isinstance(input, tensor):
            return input
        if len(assumed) != max(1, len(input.shape)):
            raise SemanticError(
                f"{name}: {len(assumed)} values for a tile of shape {list(input.shape)}"
            )
        return emit.value(tt.Hint, [input], input.type, kind=kind, values=tuple(assumed))

    emit_hint.__doc__ = doc
    return Builtin(name, emit_hint, doc=doc)


_EMITTERS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("device_assert", _emit_device_assert),
    ("static_assert", _emit_static_assert),
    ("static_print", _emit_static_print),
    ("device_print", _emit_device_print),
    ("debug_barrier", _emit_debug_barrier),
    ("assume", _emit_assume),
    ("expect_zero", _emit_expect_zero),
)
_BUILTINS: tuple[Builtin, ...] = (
    *(Builtin(name, emit) for name, emit in _EMITTERS),
    _hint(
        "multiple_of",
        "divisibility",
        "Let the compiler assume that values are multiples, per axis, in all later uses of them.",
    ),
    _hint(
        "max_contiguous",
        "contiguity",
        "Let the compiler assume runs of consecutive values, per axis, in all later uses of them.",
    ),
    _hint(
        "max_constancy",
        "constancy",
        "Let the compiler assume runs of equal values, per axis, in all later uses of them.",
    ),
)
LANGUAGE = {builtin.name: builtin for builtin in _BUILTINS}
