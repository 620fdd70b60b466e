"""A kernel compiled for one specialisation, and its launches.

Responsible for running it, for telling hooks of launches, and for what upstream's CompiledKernel
shows. Compiling is `compilation`'s. Invariant: with no launch hook a launch makes no record.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from tkdebug.compiler.dtypes import pointer_type
from tkdebug.compiler.frontend.arguments import ArgSpec, Constant
from tkdebug.errors import LaunchError
from tkdebug.events import HOOKS, ArgumentInfo, LaunchRecord, next_launch_id
from tkdebug.runtime.driver import GPUTarget, driver
from tkdebug.runtime.errors import ArgumentTypeError, MissingArtifactError
from tkdebug.runtime.grid import Grid, grid_dimensions
from tkdebug.runtime.specialize import (
    constant_key,
    is_tensor_like,
    language_dtype,
    runtime_values,
)

if TYPE_CHECKING:
    from tkdebug.compiler.frontend.scope import UsedGlobal
    from tkdebug.compiler.ir import Module
    from tkdebug.runtime.specialization import Specialization

# Stages that only code generation gives.
_NATIVE_STAGES = ("ttgir", "gpu-ir", "llir", "llvm-ir", "ptx", "cubin", "sass")
_SHOWN_VALUE_CHARS = 80


class Estimate(int):
    """A positive number standing in for one that only native compilation knows.

    Interpreted kernels have no registers and no shared memory, yet scripts divide by how much of
    them a kernel uses.
    """


class KernelMetadata(NamedTuple):
    """What a script reads off a compiled kernel; `shared` in bytes."""

    name: str
    num_warps: int
    num_stages: int
    num_ctas: int
    shared: int
    target: GPUTarget
    maxnreg: int | None
    launch_pdl: bool
    launch_cooperative_grid: bool
    debug: bool
    hash: str
    global_scratch_size: int = 0
    tmem_size: int = 0
    cluster_dims: tuple[int, int, int] = (1, 1, 1)


class Artifacts(Mapping[str, Any]):
    """A kernel's stages by upstream's names; IR is printed when first asked for."""

    def __init__(self, kernel: CompiledKernel) -> None:
        self._kernel = kernel

    def __getitem__(self, stage: str) -> Any:
        if stage == "source":
            return self._kernel.src.fn.kernel_source.text
        if stage in ("ttir", "tile-ir"):
            return self._kernel.tile_ir
        if stage in _NATIVE_STAGES:
            raise MissingArtifactError(
                f"kernel {self._kernel.name} was compiled for interpretation and has no {stage}; "
                f"it has {', '.join(self)}"
            )
        raise MissingArtifactError(
            f"kernel {self._kernel.name}: no stage {stage!r}; it has {', '.join(self)}"
        )

    def __iter__(self) -> Iterator[str]:
        return iter(("source", "ttir"))

    def __len__(self) -> int:
        return 2


class CompiledKernel:
    """A kernel compiled for one specialisation.

    Attributes:
        src: what it was compiled for.
        name: the kernel's name, by its `repr=` where it has one.
        hash: content hash.
        asm: its stages.
        metadata: num_warps, num_stages, shared…; `shared` is an `Estimate` under interpret.
        n_regs: registers per thread, an `Estimate` under interpret.
        n_spills: spilled registers; 0 under interpret.
        n_max_threads: threads a block of it may have.
        used_globals: module-level values it was compiled with.
    """

    n_regs: int = Estimate(32)
    n_spills: int = Estimate(0)
    n_max_threads: int = Estimate(1024)

    def __init__(
        self, src: Specialization, module: Module, used_globals: tuple[UsedGlobal, ...] = ()
    ) -> None:
        self.src = src
        self.module = module
        self.name = src.fn.repr(src)
        self.hash = src.hash
        self.asm = Artifacts(self)
        self.used_globals = used_globals
        # What upstream fills with the loaded function and its binary.
        self.function: object = None
        self.kernel: object = None
        options = src.options
        self.metadata = KernelMetadata(
            name=self.name,
            num_warps=options.num_warps,
            num_stages=options.num_stages,
            num_ctas=options.num_ctas,
            shared=Estimate(1024 * options.num_warps),
            target=driver.active.get_current_target(),
            maxnreg=options.maxnreg,
            launch_pdl=options.launch_pdl,
            launch_cooperative_grid=options.launch_cooperative_grid,
            debug=options.debug,
            hash=self.hash,
        )

    def _init_handles(self) -> None:
        """Load the binary, says upstream; an interpreted kernel has none to load."""

    @cached_property
    def tile_ir(self) -> str:
        """The Tile IR after the pass pipeline, as text."""
        from tkdebug.compiler.ir.printer import print_module

        return print_module(self.module)

    def launch(self, grid: Grid, values: tuple[Any, ...]) -> None:
        """Run on `grid`, none of whose axes is 0, with a value for each parameter."""
        if not HOOKS.launch:
            self._execute(grid, values, None)
            return
        record = self._record(grid, values)
        hooks = HOOKS.enter(self, record)
        started_ns = time.perf_counter_ns()
        try:
            self._execute(grid, values, record)
        except BaseException as error:
            record.error = f"{type(error).__name__}: {error}"
            raise
        finally:
            record.duration_ns = time.perf_counter_ns() - started_ns
            HOOKS.exit(hooks, self, record)

    def _execute(self, grid: Grid, values: tuple[Any, ...], record: LaunchRecord | None) -> None:
        from tkdebug.interpreter import run_module

        run_module(self.module, runtime_values(self.src.specs, values), grid, record, self.name)

    def _record(self, grid: Grid, values: tuple[Any, ...]) -> LaunchRecord:
        options = self.src.options
        add_metadata = self.src.fn.launch_metadata
        record = LaunchRecord(
            id=next_launch_id(),
            kernel=self.name,
            grid=grid,
            mode="interpret",
            options={
                "num_warps": options.num_warps,
                "num_stages": options.num_stages,
                "num_ctas": options.num_ctas,
                **({"maxnreg": options.maxnreg} if options.maxnreg is not None else {}),
            },
            make_arguments=lambda: self._describe_arguments(values),
            kernel_hash=self.hash,
            start_ns=time.time_ns(),
        )
        if add_metadata is not None:
            named = dict(zip(self.src.fn.arg_names, values, strict=True))
            record.user_metadata = lambda: dict(add_metadata(grid, self.metadata, named))
        return record

    def _describe_arguments(self, values: tuple[Any, ...]) -> tuple[ArgumentInfo, ...]:
        return tuple(
            _describe_argument(name, kind, value)
            for (name, kind), value in zip(self.src.signature.items(), values, strict=True)
        )

    def __getitem__(self, grid: Any) -> Any:
        """`kernel[grid](…)`: launch with a value for each parameter, constants included."""
        dimensions = grid_dimensions(self.name, grid)

        def run(*values: Any, stream: int | None = None) -> None:
            self._check_values(values)
            if 0 not in dimensions:
                self.launch(dimensions, values)

        return run

    def _check_values(self, values: tuple[Any, ...]) -> None:
        arguments = self.src.arguments
        if len(values) != len(arguments):
            raise ArgumentTypeError(
                f"compiled kernel {self.name}{self.src.describe()} takes all {len(arguments)} "
                f"arguments by position, constants included; got {len(values)}"
            )
        for (name, spec), value in zip(arguments.items(), values, strict=True):
            if not _fits(spec, value):
                raise LaunchError(
                    f"compiled kernel {self.name}: argument `{name}` is {_shown(value)}, but the "
                    f"kernel was compiled for {name}: {self.src.signature[name]}"
                    f"{f' = {spec.value!r}' if isinstance(spec, Constant) else ''}; "
                    "launch the jit function instead, which compiles for what it gets"
                )

    def __repr__(self) -> str:
        return f"CompiledKernel({self.name}{self.src.describe()})"


def _fits(spec: ArgSpec, value: Any) -> bool:
    if isinstance(spec, Constant):
        return value is spec.value or constant_key(value) == constant_key(spec.value)
    if isinstance(spec, pointer_type):
        return is_tensor_like(value) and language_dtype(value.dtype) == spec.element_ty
    return True


def _shown(value: Any) -> str:
    if is_tensor_like(value):
        return f"a tensor of {value.dtype}"
    text = repr(value)
    return text if len(text) <= _SHOWN_VALUE_CHARS else text[: _SHOWN_VALUE_CHARS - 1] + "…"


def _describe_argument(name: str, kind: Any, value: Any) -> ArgumentInfo:
    described = value if is_tensor_like(value) else getattr(value, "base", None)
    if not is_tensor_like(described):
        return ArgumentInfo(name, str(kind), _shown(value))
    shape = tuple(int(size) for size in value.shape)
    strides = value.strides if hasattr(value, "strides") else value.stride()
    return ArgumentInfo(
        name, str(kind), _shown(described), shape, tuple(int(stride) for stride in strides)
    )
