"""Binds the arguments of a launch and works out its specialisation key, fast.

`inspect.Signature.bind` costs more than a native launch may, so each kernel gets a Python function
generated from its signature: binding is that function's own call, and the common cases (a tensor,
an int of 32 bits, an int constant) are keyed without a further call. Everything else goes through
`specialize.launch_key`; both must agree on every key.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any

from tkdebug.compiler.frontend.arguments import ArgSpec
from tkdebug.runtime.arguments.alignment import aligned
from tkdebug.runtime.arguments.specialize import (
    INT32_MAX,
    INT32_MIN,
    accepts_declared,
    argument_spec,
    constant_key,
    launch_key,
)
from tkdebug.runtime.errors import ArgumentOverflowError, ArgumentTypeError
from tkdebug.runtime.jit.parameters import KernelParam, refuse_keyword_variadic

# Names inside the generated function that no parameter has.
_PREFIX = "_tk_"
Bound = tuple[tuple[Any, ...], tuple[Hashable, ...], dict[str, Any]]


class _NoTensor:
    """Stands for torch.Tensor in a process that has not imported torch."""


def make_binder(
    kernel: str,
    signature: inspect.Signature,
    parameters: Sequence[KernelParam],
    note_alignment: bool = False,
) -> Callable[..., Bound]:
    """A function that takes a launch's arguments.

    Args:
        kernel: the kernel's name, for messages.
        signature: the kernel's.
        parameters: the kernel's.
        note_alignment: let the key tell arguments that are multiples of 16, as native kernels are
            compiled for them; interpreted kernels do not differ by it.

    Returns:
        A function giving (values in order of the parameters, key of each, other keywords).

    Raises:
        UnsupportedError: the kernel has `**kwargs`.
    """
    refuse_keyword_variadic(kernel, signature)
    torch = sys.modules.get("torch")
    namespace: dict[str, Any] = {
        f"{_PREFIX}Tensor": _NoTensor if torch is None else torch.Tensor,
        f"{_PREFIX}launch_key": launch_key,
        f"{_PREFIX}constant_key": constant_key,
        f"{_PREFIX}declared_key": _declared_key,
        f"{_PREFIX}aligned": aligned,
    }
    for parameter in parameters:
        namespace[f"{_PREFIX}default_{parameter.num}"] = parameter.default
        namespace[f"{_PREFIX}type_{parameter.num}"] = parameter.declared_type
    names = "".join(f"{parameter.name}, " for parameter in parameters)
    keys = "".join(f"{_key_expression(parameter)}, " for parameter in parameters)
    if note_alignment:
        keys += "".join(
            f"{_alignment_expression(parameter.name)}, "
            for parameter in parameters
            if parameter.notes_alignment
        )
    text = f"def {_PREFIX}bind({_declare(parameters)}**{_PREFIX}options):\n"
    if torch is not None:
        # A mode, such as the CUDA stand-in, would be called for each tensor's element type.
        namespace[f"{_PREFIX}Unseen"] = torch._C.DisableTorchFunction  # noqa: SLF001
        text += f"    with {_PREFIX}Unseen():\n    "
    text += f"    return ({names}), ({keys}), {_PREFIX}options\n"
    exec(_compiled(text), namespace)
    binder: Callable[..., Bound] = namespace[f"{_PREFIX}bind"]
    return binder


@lru_cache(maxsize=1024)
def _compiled(text: str) -> CodeType:
    # Kernels that take the same arguments are many.
    return compile(text, "<arguments of a kernel>", "exec")


def _declare(parameters: Sequence[KernelParam]) -> str:
    declared = ""
    keyword_only = False
    for parameter in parameters:
        if parameter.is_variadic:
            keyword_only = True
            declared += f"*{parameter.name}, "
            continue
        if parameter.is_keyword_only and not keyword_only:
            keyword_only = True
            declared += "*, "
        default = f"={_PREFIX}default_{parameter.num}" if parameter.has_default else ""
        declared += f"{parameter.name}{default}, "
    return declared


def _key_expression(parameter: KernelParam) -> str:
    name = parameter.name
    if parameter.is_constexpr:
        return f"{name} if {name}.__class__ is int else {_PREFIX}constant_key({name})"
    if parameter.declared_type is not None:
        arguments = f"{_PREFIX}type_{parameter.num}, {name}, {not parameter.do_not_specialize}"
        return f"{_PREFIX}declared_key({arguments})"
    not_one = "" if parameter.do_not_specialize else f"{name} != 1 and "
    return (
        f"{name}.dtype if {name}.__class__ is {_PREFIX}Tensor else "
        f"'i32' if {name}.__class__ is int and {not_one}{INT32_MIN} <= {name} <= {INT32_MAX} else "
        f"{_PREFIX}launch_key({name}, {not parameter.do_not_specialize})"
    )


def _alignment_expression(name: str) -> str:
    return (
        f"not {name}.data_ptr() & 15 if {name}.__class__ is {_PREFIX}Tensor else "
        f"not {name} & 15 if {name}.__class__ is int else {_PREFIX}aligned({name})"
    )


def _declared_key(declared: Any, value: Any, specialize: bool) -> Hashable:
    return "declared" if accepts_declared(declared, value) else launch_key(value, specialize)


def explain_binding(
    kernel: str,
    signature: inspect.Signature,
    parameters: Sequence[KernelParam],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
) -> None:
    """Say why a launch's arguments do not fit the kernel.

    Raises:
        ArgumentTypeError: naming the missing, doubled or surplus arguments, or one that no kernel
            can take.
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
    """What `parameter` of `kernel` is compiled for when it gets `value`.

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
