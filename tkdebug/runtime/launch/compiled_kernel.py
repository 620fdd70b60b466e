"""A kernel compiled for one specialisation: the part that interpreted and native ones share.

Responsible for the attributes of upstream's CompiledKernel, for launching by position, and for the
record that hooks get of a launch. The subclasses run it (`interpreted_kernel`, `native_kernel`),
`compilation` compiles it. Invariant: with no launch hook a launch makes no record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from tkdebug.compiler.dtypes import pointer_type
from tkdebug.compiler.frontend.arguments import ArgSpec, Constant
from tkdebug.errors import LaunchError
from tkdebug.knobs import KNOBS
from tkdebug.records.events import KernelLaunch, Mode, launch_type
from tkdebug.runtime.arguments.argument_infos import ArgumentInfos, shown_value
from tkdebug.runtime.arguments.specialize import constant_key, is_tensor_like, language_dtype
from tkdebug.runtime.device.platform import GPUTarget
from tkdebug.runtime.errors import ArgumentTypeError, MissingArtifactError
from tkdebug.runtime.launch.requests import Grid, grid_dimensions

if TYPE_CHECKING:
    from tkdebug.compiler.frontend.scope import UsedGlobal
    from tkdebug.runtime.compile.specialization import Specialization
    from tkdebug.runtime.device.modes import NextAction

# Guarded globals: a function, what it is called with, and what it gives while nothing has changed.
Guarded = tuple[tuple[Callable[[Any], object], Any, object], ...]


class KernelMetadata(NamedTuple):
    """The facts that a script reads off a compiled kernel; `shared` in bytes."""

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
    """A kernel's stages, by upstream's names and tkdebug's; each is made when first asked for.

    Args:
        kernel: the kernel's name, for messages.
        stages: a function that makes each stage.
        aliases: other names of stages; iteration leaves them out.
        missing: why known stages are not there.
    """

    def __init__(
        self,
        kernel: str,
        stages: Mapping[str, Callable[[], Any]],
        aliases: Mapping[str, str],
        missing: Mapping[str, str],
    ) -> None:
        self._kernel = kernel
        self._stages = stages
        self._aliases = aliases
        self._missing = missing

    def __getitem__(self, stage: str) -> Any:
        make = self._stages.get(self._aliases.get(stage, stage))
        if make is not None:
            return make()
        reason = self._missing.get(stage, f"no stage {stage!r}")
        raise MissingArtifactError(
            f"kernel {self._kernel}: {reason}; it has {', '.join(self._stages)}"
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._stages)

    def __len__(self) -> int:
        return len(self._stages)


class CompiledKernel:
    """A kernel compiled for one specialisation.

    Attributes:
        src: the specialisation.
        name: the kernel's name, by its `repr=` where it has one.
        hash: content hash.
        asm: the kernel's stages.
        metadata: num_warps, num_stages, shared…
        n_regs: registers per thread.
        n_spills: registers kept in memory, per thread.
        n_max_threads: threads a block of it may have.
        used_globals: module-level values it was compiled with.
        guarded: a lookup of each guarded global: (function, name, value).
        next_action: gives the action at the next launch; None if that is always to submit it.
    """

    mode: ClassVar[Mode]
    asm: Mapping[str, Any]
    n_regs: int
    n_spills: int
    n_max_threads: int

    def __init__(self, src: Specialization, used_globals: tuple[UsedGlobal, ...] = ()) -> None:
        self.src = src
        self.name = src.fn.repr(src)
        self.hash = src.hash
        self.used_globals = used_globals
        self.guarded: Guarded = tuple(
            (used.namespace.get, used.name, used.value) for used in used_globals
        )
        self.next_action: Callable[[], NextAction] | None = None
        # Attributes that upstream fills with the loaded function and its binary.
        self.function: object = None
        self.kernel: object = None
        options = src.options
        self._shown_options: Mapping[str, object] = {
            "num_warps": options.num_warps,
            "num_stages": options.num_stages,
            "num_ctas": options.num_ctas,
            **({"maxnreg": options.maxnreg} if options.maxnreg is not None else {}),
            **({"checked": True} if src.checks is not None else {}),
        }

    @cached_property
    def metadata(self) -> KernelMetadata:
        """The facts that scripts read off the kernel."""
        raise NotImplementedError

    def _make_metadata(self, shared_bytes: int, target: GPUTarget) -> KernelMetadata:
        options = self.src.options
        return KernelMetadata(
            name=self.name,
            num_warps=options.num_warps,
            num_stages=options.num_stages,
            num_ctas=options.num_ctas,
            shared=shared_bytes,
            target=target,
            maxnreg=options.maxnreg,
            launch_pdl=options.launch_pdl,
            launch_cooperative_grid=options.launch_cooperative_grid,
            debug=options.debug,
            hash=self.hash,
        )

    def _init_handles(self) -> None:
        """Load the binary, if there is one."""

    def launch_metadata(self, grid: Grid, stream: int, *values: Any) -> None:
        """Return None; upstream's launchers make the argument of launch hooks here."""

    @cached_property
    def tile_ir(self) -> str:
        """The Tile IR after its passes, as text."""
        raise NotImplementedError

    def launch(self, grid: Grid, values: tuple[Any, ...], stream: int | None = None) -> None:
        """Run on `grid`, none of whose axes is 0, with a value for each parameter.

        Args:
            grid: programs along x, y and z.
            values: constants included.
            stream: handle of the CUDA stream; None for the current one.
        """
        raise NotImplementedError

    def launch_nothing(self, grid: Grid, values: tuple[Any, ...]) -> None:
        """Launch nothing, as an axis of the grid is 0; subclasses may report that."""

    @cached_property
    def launch_record(self) -> type[KernelLaunch]:
        """The type of the records that hooks get of its launches."""
        has_metadata = self.src.fn.launch_metadata is not None
        infos = ArgumentInfos(self.src.signature, self.src.constants)
        return launch_type(
            self.name,
            self.mode,
            self._shown_options,
            self.hash,
            infos.of,
            self._user_metadata if has_metadata else None,
        )

    def _user_metadata(self, grid: Grid, values: tuple[Any, ...]) -> dict[str, object]:
        named = dict(zip(self.src.fn.arg_names, values, strict=True))
        assert self.src.fn.launch_metadata is not None
        return dict(self.src.fn.launch_metadata(grid, self.metadata, named))

    def __getitem__(self, grid: Any) -> Any:
        """`kernel[grid](…)`: launch with a value for each parameter, constants included.

        From Triton 3.7 on, constants at the end may be left out.
        """
        dimensions = grid_dimensions(self.name, grid)

        def run(*values: Any, stream: int | None = None) -> None:
            values = self._completed(values)
            self._check_values(values)
            if 0 not in dimensions:
                self.launch(dimensions, values, stream)

        return run

    def _completed(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """`values` and the constants that may be left out, as upstream's launcher takes them."""
        if KNOBS.triton_version < "3.7":
            return values
        left_out = tuple(self.src.arguments.values())[len(values) :]
        constants = tuple(spec.value for spec in left_out if isinstance(spec, Constant))
        return values + constants if len(constants) == len(left_out) else values

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
                    f"compiled kernel {self.name}: argument `{name}` is {shown_value(value)}, but "
                    f"the kernel was compiled for {name}: {self.src.signature[name]}"
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
