"""Binds the arguments of a launch that is not native, and works out its specialisation key.

Native launches bind theirs in a generated function (`launch.launch_writer`); it and this module
must agree with `specialize.argument_spec` on which launches share a kernel.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from tkdebug.compiler.frontend.arguments import ArgSpec
from tkdebug.runtime.arguments.specialize import (
    accepts_declared,
    argument_spec,
    constant_key,
    launch_key,
)
from tkdebug.runtime.errors import ArgumentOverflowError, ArgumentTypeError
from tkdebug.runtime.jit.parameters import KernelParam, refuse_keyword_variadic

Bound = tuple[tuple[Any, ...], tuple[Hashable, ...], dict[str, Any]]


def make_binder(
    kernel: str, signature: inspect.Signature, parameters: Sequence[KernelParam]
) -> Callable[[tuple[Any, ...], Mapping[str, Any]], Bound]:
    """Make the function that takes a launch's positional arguments and keywords.

    Args:
        kernel: the kernel's name, for messages.
        signature: the kernel's.
        parameters: the kernel's.

    Returns:
        A function giving (values in order of the parameters, key of each, other keywords); it
        raises TypeError where the arguments do not fit.

    Raises:
        UnsupportedError: the kernel has `**kwargs`.
    """
    refuse_keyword_variadic(kernel, signature)
    names = tuple(parameter.name for parameter in parameters)
    by_name = frozenset(parameter.name for parameter in parameters if not parameter.is_variadic)
    torch = sys.modules.get("torch")
    # A mode, such as the CUDA stand-in, would be called for each tensor's element type.
    unseen: Callable[[], contextlib.AbstractContextManager[object]] = (
        contextlib.nullcontext if torch is None else torch._C.DisableTorchFunction  # noqa: SLF001
    )

    def bind(args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Bound:
        options = {name: value for name, value in keywords.items() if name not in by_name}
        named = {name: value for name, value in keywords.items() if name in by_name}
        bound = signature.bind(*args, **named)
        bound.apply_defaults()
        values = tuple([bound.arguments[name] for name in names])
        with unseen():
            return values, tuple(map(_key, parameters, values)), options

    return bind


def _key(parameter: KernelParam, value: Any) -> Hashable:
    if parameter.is_constexpr:
        return constant_key(value)
    if parameter.declared_type is not None and accepts_declared(parameter.declared_type, value):
        return "declared"
    return launch_key(value, not parameter.do_not_specialize)


def explain_binding(
    kernel: str,
    signature: inspect.Signature,
    parameters: Sequence[KernelParam],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
) -> None:
    """Raise the error that says why a launch's arguments do not fit the kernel.

    Raises:
        ArgumentTypeError: arguments are missing, doubled or surplus, or no kernel can take one; the
            message names them.
        ArgumentOverflowError: an int has more than 64 bits.
    """
    names = list(signature.parameters)
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    variadic = inspect.Parameter.VAR_POSITIONAL in kinds
    written = [
        f"*{name}" if kind is inspect.Parameter.VAR_POSITIONAL else name
        for name, kind in zip(names, kinds, strict=True)
    ]
    shown = f"kernel {kernel}({', '.join(written)})"
    if len(arguments) > len(names) and not variadic:
        plural = "" if len(names) == 1 else "s"
        raise ArgumentTypeError(
            f"{shown} takes {len(names)} argument{plural}, got {len(arguments)} positional ones"
        )
    given = names[: len(arguments)]
    doubled = [name for name in given if name in keywords]
    if doubled:
        raise ArgumentTypeError(f"{shown} got {_quoted(doubled)} twice, by position and by keyword")
    missing = [
        name
        for name, parameter in signature.parameters.items()
        if name not in given
        and name not in keywords
        and parameter.default is inspect.Parameter.empty
        and parameter.kind is not inspect.Parameter.VAR_POSITIONAL
    ]
    if missing:
        plural = "s" if len(missing) > 1 else ""
        raise ArgumentTypeError(f"{shown} is missing argument{plural} {_quoted(missing)}")
    values = {**dict(zip(names, arguments, strict=False)), **keywords}
    for parameter in parameters:
        if parameter.name in values and not parameter.is_variadic:
            spec_of(kernel, parameter, values[parameter.name])


def spec_of(kernel: str, parameter: KernelParam, value: Any) -> ArgSpec:
    """Return the type or constant that `parameter` is compiled for when it gets `value`.

    Raises:
        ArgumentTypeError: no kernel can take it.
        ArgumentOverflowError: an int has more than 64 bits.
    """
    try:
        return argument_spec(parameter, value)
    except (ArgumentTypeError, ArgumentOverflowError) as error:
        raise type(error)(f"kernel {kernel}: argument `{parameter.name}`: {error}") from None


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
