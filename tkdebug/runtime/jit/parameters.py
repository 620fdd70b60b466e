"""The parameters of a kernel, with their annotations and decorator arguments."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tkdebug.compiler import dtypes
from tkdebug.compiler.dtypes import LanguageType, pointer_type
from tkdebug.errors import UnsupportedError

# Type names as annotations write them -> upstream's canonical form.
CANONICAL_NAMES = {
    "bool": "u1",
    "int1": "u1",
    "uint1": "u1",
    "i1": "u1",
    "u1": "u1",
    "void": "void",
    "half": "fp16",
    "float": "fp32",
    "double": "fp64",
    "int": "i32",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    "float8_e4m3fnuz": "fp8e4b8",
    "float8_e5m2fnuz": "fp8e5b16",
}
_TYPES: dict[str, LanguageType] = {"u1": dtypes.int1}
for _member, _type in dtypes.MEMBERS.items():
    if not isinstance(_type, dtypes.dtype) or _type.name in ("void", "int1"):
        continue
    _short = _type.name.replace("uint", "u").replace("int", "i")
    _TYPES[_short] = _type
    CANONICAL_NAMES[_short] = CANONICAL_NAMES[_type.name] = CANONICAL_NAMES[_member] = _short
    CANONICAL_NAMES[f"{_short}_t"] = CANONICAL_NAMES[f"{_member}_t"] = _short


def canonical_annotation(annotation: object) -> str:
    """An annotation in upstream's canonical form, such as `constexpr`, `i32`, `*fp16`, `*kfp16`."""
    if isinstance(annotation, pointer_type):
        prefix = "*k" if annotation.const else "*"
        return prefix + canonical_annotation(annotation.element_ty)
    if isinstance(annotation, str):
        return _canonical_text(annotation.strip())
    if isinstance(annotation, type):
        return _canonical_text(annotation.__name__)
    return _canonical_text(str(annotation))


def _canonical_text(text: str) -> str:
    if text.startswith("const "):
        pointee = _canonical_text(text.removeprefix("const ").strip())
        return "*k" + pointee[1:] if pointee.startswith("*") else "const " + pointee
    if text.endswith("*"):
        return "*" + _canonical_text(text[:-1].strip())
    if text.startswith("*"):
        return "*" + _canonical_text(text[1:].strip())
    if text.startswith(("tl.", "triton.language.", "torch.")):
        return _canonical_text(text.rpartition(".")[2])
    return CANONICAL_NAMES.get(text, text)


def type_named(text: str) -> LanguageType | None:
    """The type of a canonical name such as `i32` or `*kfp16`; None if it names none."""
    if not text.startswith("*"):
        return _TYPES.get(text)
    is_const = text.startswith("*k")
    element = type_named(text[2 if is_const else 1 :])
    return None if element is None else pointer_type(element, const=is_const)


@dataclass(frozen=True)
class KernelParam:
    """One parameter of a jit function.

    Attributes:
        num: position, from 0.
        do_not_specialize: an int 1 stays a run-time value, and alignment is not noted.
        do_not_specialize_on_alignment: alignment is not noted.
    """

    num: int
    source: inspect.Parameter
    do_not_specialize: bool = False
    do_not_specialize_on_alignment: bool = False

    @cached_property
    def name(self) -> str:
        """The name."""
        return self.source.name

    @cached_property
    def annotation(self) -> str:
        """Canonical text of its annotation; "" without one."""
        written = self.source.annotation
        if written is inspect.Parameter.empty or not written:
            return ""
        return canonical_annotation(written)

    @cached_property
    def is_constexpr(self) -> bool:
        """Whether it is a compile-time constant."""
        return "constexpr" in self.annotation

    @cached_property
    def is_const(self) -> bool:
        """Whether it points to memory that the kernel only reads."""
        if self.is_constexpr:
            return False
        return "const" in self.annotation or self.annotation.startswith("*k")

    @cached_property
    def notes_alignment(self) -> bool:
        """Whether native kernels are compiled for the alignment of its values."""
        opts_out = self.do_not_specialize or self.do_not_specialize_on_alignment
        return not self.is_constexpr and not opts_out

    @cached_property
    def declared_type(self) -> LanguageType | None:
        """The type its annotation names, None if it names none."""
        return type_named(self.annotation)

    @cached_property
    def annotation_type(self) -> str:
        """`annotation` where it names a type, else ""."""
        return self.annotation if self.declared_type is not None else ""

    @property
    def is_variadic(self) -> bool:
        """Whether it takes the positional arguments that are left, as a tuple."""
        return self.source.kind is inspect.Parameter.VAR_POSITIONAL

    @property
    def is_keyword_only(self) -> bool:
        """Whether it is given by its name alone."""
        return self.source.kind is inspect.Parameter.KEYWORD_ONLY

    @property
    def default(self) -> Any:
        """The default value; `inspect.Parameter.empty` without one."""
        return self.source.default

    @property
    def has_default(self) -> bool:
        """Whether it has a default value."""
        return self.source.default is not inspect.Parameter.empty


def kernel_parameters(
    signature: inspect.Signature,
    do_not_specialize: Collection[int | str] = (),
    do_not_specialize_on_alignment: Collection[int | str] = (),
) -> list[KernelParam]:
    """The parameters of a kernel; the collections hold names or positions."""

    def listed(position: int, name: str, where: Collection[int | str]) -> bool:
        return position in where or name in where

    return [
        KernelParam(
            position,
            parameter,
            listed(position, parameter.name, do_not_specialize),
            listed(position, parameter.name, do_not_specialize_on_alignment),
        )
        for position, parameter in enumerate(signature.parameters.values())
    ]


def refuse_keyword_variadic(kernel: str, signature: inspect.Signature) -> None:
    """Refuse a `**kwargs` parameter.

    Raises:
        UnsupportedError: the kernel has one.
    """
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            raise UnsupportedError(
                f"kernel {kernel}: parameter {parameter} is not supported; "
                "name each parameter, or pass a tuple"
            )
