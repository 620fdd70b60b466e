"""Upstream's compiler entry points, by name.

torch and libraries import these; only what generates code for a GPU through them (torch.compile, an
ahead-of-time compile) calls them, and that is refused with the name of what was asked.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import tkdebug
from tkdebug.compat.finder import UPSTREAM_VERSION
from tkdebug.errors import UnsupportedError
from tkdebug.runtime.driver import Driver

_INSTEAD = (
    "kernels that torch.compile generates and ahead-of-time compiles need upstream's compiler: "
    "run them without tkdebug, or call the function without torch.compile"
)


def _refuse(name: str) -> NoReturn:
    raise UnsupportedError(f"{name} is not in this version of tkdebug; {_INSTEAD}")


def compile(src: Any, target: Any = None, options: Any = None, **keywords: Any) -> NoReturn:
    """Refuse an ahead-of-time compile.

    Raises:
        UnsupportedError: always.
    """
    _refuse("triton.compile")


def make_backend(target: Any) -> NoReturn:
    """Refuse a code generation backend.

    Raises:
        UnsupportedError: always.
    """
    _refuse("triton.compiler.make_backend")


def triton_key() -> str:
    """What distinguishes this compiler from others in caches."""
    return hashlib.sha256(f"{UPSTREAM_VERSION}-tkdebug-{tkdebug.__version__}".encode()).hexdigest()


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


class IRSource:
    """An IR file for `triton.compile`."""

    def __init__(self, path: Any, context: Any = None, backend: Any = None) -> None:
        _refuse("triton.compiler.IRSource")


class BaseBackend:
    """Upstream's base class of code generators; tkdebug has none behind this interface."""

    def __init__(self, target: Any) -> None:
        _refuse(type(self).__name__)


class InterpretedFunction:
    """Upstream's type of interpreted kernels: under tkdebug no kernel is of it."""

    def __init__(self, fn: Any, **keywords: Any) -> None:
        _refuse("triton.runtime.interpreter.InterpretedFunction")


@dataclass(frozen=True, slots=True)
class Backend:
    """A code generator and its driver."""

    compiler: type[BaseBackend]
    driver: type[Driver]


BACKENDS: Mapping[str, Backend] = {"nvidia": Backend(BaseBackend, Driver)}
