"""Upstream's compiler entry points, by name.

torch and libraries import these. `compile` of a jit function compiles as a launch in the current
mode would, or to machine code for a named CUDA target; what needs upstream's own code generators
(torch.compile, IR files) is refused with the name of what was asked.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import tkdebug
from tkdebug.compat.finder import upstream_version
from tkdebug.compiler.frontend.arguments import ArgSpec, Constant
from tkdebug.compiler.tensor import is_jit_function, unwrap
from tkdebug.errors import UnsupportedError
from tkdebug.runtime.arguments.specialize import ALIGNMENT
from tkdebug.runtime.compile.options import LaunchOptions, parse_options, without_amd_options
from tkdebug.runtime.compile.specialization import Specialization
from tkdebug.runtime.device.driver import Driver, driver
from tkdebug.runtime.device.modes import current_mode
from tkdebug.runtime.errors import ArgumentTypeError
from tkdebug.runtime.jit.function import JITFunction
from tkdebug.runtime.jit.parameters import KernelParam, canonical_annotation, type_named
from tkdebug.runtime.launch.compiled_kernel import CompiledKernel
from tkdebug.runtime.launch.interpreted_kernel import compile_kernel

_INSTEAD = (
    "kernels that torch.compile generates and ahead-of-time compiles need upstream's compiler: "
    "run them without tkdebug, or call the function without torch.compile"
)


def _refuse(name: str) -> NoReturn:
    raise UnsupportedError(f"{name} is not in this version of tkdebug; {_INSTEAD}")


def compile(src: Any, target: Any = None, options: Any = None) -> CompiledKernel:
    """Compile a jit function for a signature, without launching it.

    Args:
        src: an `ASTSource` of a jit function.
        target: a `GPUTarget` to generate code for; None for the current mode and device.
        options: launch options by name.

    Raises:
        UnsupportedError: a target that is no CUDA one, or the source is no jit function.
        CompileError: the kernel does not compile.
    """
    if not isinstance(src, ASTSource) or not is_jit_function(src.fn):
        _refuse("triton.compile")
    fn: JITFunction = src.fn
    given = dict(without_amd_options(options or {}))
    if target is not None:
        if getattr(target, "backend", None) != "cuda":
            _refuse(f"triton.compile for {target!r}")
        given.setdefault("arch", f"sm{target.arch}")
    settings = parse_options(fn.__name__, given, fn.arg_names, bool(fn.debug))
    if target is None and current_mode(fn.__name__) == "interpret":
        return compile_kernel(Specialization(fn, src.specs(), settings))
    from tkdebug.compat.inductor.compiles import INDUCTOR_COMPILES, WANTED
    from tkdebug.runtime.compile.native_compilation import compile_native_kernel

    device = driver.active.get_current_device()
    specialization = Specialization(fn, src.specs(), settings, src.alignment())
    wanted = WANTED.get()
    if wanted is not None:
        return INDUCTOR_COMPILES.kernel(specialization, device, wanted)
    return compile_native_kernel(specialization, device)


class CompilerBackend:
    """The code generator for a target, as torch's compiler asks it.

    Attributes:
        binary_ext: the stage that is machine code.
    """

    binary_ext = "cubin"

    def __init__(self, target: Any) -> None:
        self.target = target

    def hash(self) -> str:
        """Return a key that distinguishes its code from other generators' code."""
        return f"tkdebug-{tkdebug.__version__}-{self.target.arch}"

    def parse_options(self, options: Mapping[str, Any]) -> LaunchOptions:
        """The options of a launch, with defaults for the missing ones."""
        return parse_options("", options, (), False)


def make_backend(target: Any) -> CompilerBackend:
    """The code generator for a CUDA target.

    Raises:
        UnsupportedError: another kind of target.
    """
    if getattr(target, "backend", None) != "cuda":
        _refuse(f"triton.compiler.make_backend for {target!r}")
    return CompilerBackend(target)


def triton_key() -> str:
    """Return a key that distinguishes this compiler from others in caches."""
    return hashlib.sha256(
        f"{upstream_version()}-tkdebug-{tkdebug.__version__}".encode()
    ).hexdigest()


def base32_of_hex(key: str) -> str:
    """The hexadecimal digest `key` in base 32, without padding: a short name for a folder."""
    return base64.b32encode(bytes.fromhex(key)).decode("ascii").rstrip("=")


class ASTSource:
    """A kernel with a signature, for `triton.compile`."""

    def __init__(self, fn: Any, signature: Any, constexprs: Any = None, attrs: Any = None) -> None:
        self.fn = fn
        self.signature = signature
        self.constants = constexprs or {}
        self.attrs = attrs or {}
        self.name = getattr(fn, "__name__", "")
        self.ext = "ttir"

    def specs(self) -> tuple[ArgSpec, ...]:
        """Return the type or constant that each parameter is compiled for.

        Raises:
            ArgumentTypeError: the signature leaves a parameter out or names no type.
        """
        return tuple(self._spec(parameter) for parameter in self.fn.params)

    def alignment(self) -> tuple[bool | None, ...]:
        """Return whether `attrs` declares each argument a multiple of 16, like `alignment_key`."""
        return tuple(
            None
            if parameter.is_constexpr
            else any(
                name == "tt.divisibility" and value % ALIGNMENT == 0
                for name, value in self.attrs.get((parameter.num,), ())
            )
            for parameter in self.fn.params
        )

    def _spec(self, parameter: KernelParam) -> ArgSpec:
        for key in (parameter.name, (parameter.num,)):
            if key in self.constants:
                return Constant(unwrap(self.constants[key]))
        text = self.signature.get(parameter.name)
        named = type_named(canonical_annotation(text)) if isinstance(text, str) else None
        if named is None:
            raise ArgumentTypeError(
                f"triton.compile: kernel {self.name}: parameter `{parameter.name}` has the type "
                f"{text!r} in the signature; expected one such as i32, fp16, *fp32, "
                "or constexpr with its value in constexprs"
            )
        return named


class IRSource:
    """An IR file for `triton.compile`."""

    def __init__(self, path: Any, context: Any = None, backend: Any = None) -> None:
        _refuse("triton.compiler.IRSource")


class BaseBackend:
    """Upstream's base class of code generators; tkdebug has none behind this interface."""

    def __init__(self, target: Any) -> None:
        _refuse(type(self).__name__)


class InterpretedFunction:
    """Upstream's type of interpreted kernels, which no kernel has under tkdebug."""

    def __init__(self, fn: Any, **keywords: Any) -> None:
        _refuse("triton.runtime.interpreter.InterpretedFunction")


@dataclass(frozen=True, slots=True)
class Backend:
    """A code generator and its driver."""

    compiler: type[BaseBackend]
    driver: type[Driver]


BACKENDS: Mapping[str, Backend] = {"nvidia": Backend(BaseBackend, Driver)}
