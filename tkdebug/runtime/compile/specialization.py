"""Specialisations of kernels: the function, its argument types, the options."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tkdebug.compiler.frontend.arguments import ArgSpec, Constant
from tkdebug.runtime.arguments.specialize import (
    ALIGNMENT,
    arg_divisibility,
    constant_key,
    mappable_names,
    upstream_name,
)
from tkdebug.runtime.compile.options import LaunchOptions

if TYPE_CHECKING:
    from tkdebug.compiler.sites.checks import CheckOptions
    from tkdebug.runtime.jit.function_source import KernelFunction


@dataclass(frozen=True)
class Specialization:
    """The function, types and options that a kernel is compiled for.

    Attributes:
        fn: the jit function.
        specs: a language type, a constant or a tuple of these for each parameter, in order.
        options: the launch options.
        alignment: for native kernels the `alignment_key` of the arguments; None for interpreted
            ones, which do not differ by it.
        host_tma_descriptors: whether launches may make tensor maps of descriptors that the kernel
            makes.
        checks: the checks of its launches; None in builds without checks.
    """

    fn: KernelFunction
    specs: tuple[ArgSpec, ...]
    options: LaunchOptions
    alignment: tuple[Hashable, ...] | None = None
    host_tma_descriptors: bool = True
    checks: CheckOptions | None = None

    @cached_property
    def arguments(self) -> dict[str, ArgSpec]:
        """The specs by parameter name."""
        return dict(zip(self.fn.arg_names, self.specs, strict=True))

    @cached_property
    def signature(self) -> dict[str, Any]:
        """Upstream's type names by parameter name."""
        return {name: upstream_name(spec) for name, spec in self.arguments.items()}

    @cached_property
    def constants(self) -> dict[str, Any]:
        """The values of constant parameters by name."""
        return {n: spec.value for n, spec in self.arguments.items() if isinstance(spec, Constant)}

    @property
    def attrs(self) -> dict[tuple[int, ...], list[list[Any]]]:
        """Upstream's argument attributes by path: which arguments are multiples of 16."""
        paths = _aligned_paths((), self.alignment or ())
        return {path: [["tt.divisibility", ALIGNMENT]] for path in paths}

    @cached_property
    def arg_divisibility(self) -> tuple[int, ...] | None:
        """A known divisor of each run-time parameter, None if alignment is not noted."""
        return None if self.alignment is None else arg_divisibility(self.specs, self.alignment)

    @cached_property
    def mappable(self) -> tuple[str, ...]:
        """The descriptors that may be passed as tensor maps, as the IR names them."""
        if self.alignment is None:
            return ()
        return mappable_names(self.fn.arg_names, self.specs, self.alignment)

    @cached_property
    def hash(self) -> str:
        """Content hash: source and dependencies, types, constants, options."""
        constants = {name: _stable(value) for name, value in self.constants.items()}
        parts: tuple[object, ...] = (self.fn.cache_key, self.signature, constants, self.options)
        if self.alignment is not None:
            parts = (*parts, self.alignment)
        if not self.host_tma_descriptors:
            parts = (*parts, "no launch maps")
        if self.checks is not None:
            watches = [watch.text for watch in self.checks.watches]
            parts = (*parts, "checks", sorted(self.checks.kinds))
            parts += ("watches", *watches, self.checks.watch_bytes) if watches else ()
            parts += self.checks.instrumentations
            parts += () if self.checks.timeline is None else ("timeline", self.checks.timeline)
            parts += ("lasting",) if self.checks.is_lasting else ()
            ends = sorted(self.checks.aligned_ends)
            parts += ("ends", *ends) if ends else ()
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def describe(self) -> str:
        """The signature as people read it: `(x: *fp32, n: i32, BLOCK: constexpr = 64)`."""
        return signature_text(self.signature, self.constants)


def signature_text(signature: Mapping[str, str], constants: Mapping[str, Any]) -> str:
    """Return a signature as people read it: `(x: *fp32, n: i32, BLOCK: constexpr = 64)`."""
    shown = [
        f"{name}: constexpr = {constants[name]!r}" if name in constants else f"{name}: {kind}"
        for name, kind in signature.items()
    ]
    return f"({', '.join(shown)})"


def _stable(value: Any) -> object:
    # A jit function's repr does not tell its text.
    return getattr(value, "cache_key", None) or constant_key(value)


def _aligned_paths(prefix: tuple[int, ...], alignment: Iterable[Hashable]) -> list[tuple[int, ...]]:
    paths: list[tuple[int, ...]] = []
    for index, aligned in enumerate(alignment):
        if isinstance(aligned, tuple):
            paths += _aligned_paths((*prefix, index), aligned)
        elif aligned is True:
            paths.append((*prefix, index))
    return paths
