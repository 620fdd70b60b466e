"""A kernel compiled to machine code, and its launches on one device.

Responsible for loading it when it is first launched, and for hooks around its launches. The
platform makes the launch (`device/platform.py`). Invariant: a launch without hooks is `submit`
alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from time import perf_counter_ns, time_ns
from typing import TYPE_CHECKING, Any

from tkdebug.compiler.dtypes import dtype, pointer_type
from tkdebug.compiler.frontend.arguments import ArgSpec, Constant
from tkdebug.compiler.targets import backend_of, target_of
from tkdebug.errors import shown_path
from tkdebug.process.apart_imports import import_apart
from tkdebug.records.events import LaunchRecord, next_launch_id
from tkdebug.records.hook_chain import HOOKS
from tkdebug.runtime.arguments.specialize import is_tensor_like
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor
from tkdebug.runtime.device.platform import GPUTarget, Platform, platform_in_force
from tkdebug.runtime.errors import NoDeviceError, OutOfResources
from tkdebug.runtime.launch.allocation import make_workspace
from tkdebug.runtime.launch.compiled_kernel import Artifacts, CompiledKernel
from tkdebug.runtime.launch.launches_in_flight import IN_FLIGHT, NOWHERE, plain
from tkdebug.runtime.launch.requests import Grid
from tkdebug.runtime.upstream_hooks import LOAD_HOOKS

if TYPE_CHECKING:
    from tkdebug.compiler.frontend.scope import UsedGlobal
    from tkdebug.compiler.ir import Module
    from tkdebug.compiler.targets.backend import Binary
    from tkdebug.records.hook_chain import NoteParts
    from tkdebug.runtime.checked.checked_kernel import CheckedKernel
    from tkdebug.runtime.checked.checked_launch import CheckedLaunch
    from tkdebug.runtime.compile.specialization import Specialization
    from tkdebug.runtime.device.platform import SpanTimer
    from tkdebug.runtime.launch.allocation import Buffer

_BYTES_PER_REGISTER = 4
Recompile = Callable[["Specialization", int], "NativeKernel"]
# A constant below it is a count or a flag rather than the extent of a tile.
_LEAST_BLOCK = 16
_MAX_BLOCKS = 6


class NativeKernel(CompiledKernel):
    """A kernel that runs on device `device`.

    Attributes:
        binary: the compiled code.
        module: the driver's handle of the loaded cubin; None before.
        submit: launches without hooks: `submit(x, y, z, stream, *arguments)`, an argument for each
            parameter that is not constexpr, tensors by their address. It returns the kernel that
            ran, if that is another one.
    """

    mode = "native"

    def __init__(
        self,
        src: Specialization,
        tile_ir: str,
        make_gpu_module: Callable[[], Module],
        binary: Binary,
        used_globals: tuple[UsedGlobal, ...],
        device: int,
        recompile: Recompile,
    ) -> None:
        super().__init__(src, used_globals)
        self._make_gpu_module = make_gpu_module
        self._tile_ir = tile_ir
        self.binary = binary
        self.device = device
        self._recompile = recompile
        self.kernel = binary.image
        self.module: int | None = None
        self.n_regs = binary.registers
        self.n_spills = binary.spill_bytes // _BYTES_PER_REGISTER
        self.n_max_threads = binary.threads
        target = target_of(binary.target)
        major, minor = target.capability
        name = backend_of(target).upstream_name
        self._backend = target.backend
        self.metadata = self._make_metadata(
            binary.shared_bytes, GPUTarget(name, major * 10 + minor, target.threads_per_warp)
        )._replace(global_scratch_size=binary.workspace_bytes)
        self.asm = self._artifacts()
        self.submit: Callable[..., NativeKernel | None] = self._load_and_submit
        # The kernel that looks at launches that `run` makes; None for none.
        self.checked_by: CheckedKernel | None = None

    def _artifacts(self) -> Artifacts:
        binary = self.binary
        stages: dict[str, Callable[[], Any]] = {
            "source": lambda: self.src.fn.kernel_source.text,
            "ttir": lambda: self.tile_ir,
            "ttgir": lambda: self.gpu_ir,
            **binary.stages(),
        }
        aliases = {"tile-ir": "ttir", "gpu-ir": "ttgir", "llvm-ir": "llir"}
        return Artifacts(self.name, stages, aliases, {})

    @property
    def tile_ir(self) -> str:
        """The Tile IR after its passes, as text."""
        return self._tile_ir

    @property
    def gpu_module(self) -> Module:
        """The GPU IR it was lowered from."""
        return self._make_gpu_module()

    @cached_property
    def gpu_ir(self) -> str:
        """The GPU IR as it is lowered, as text."""
        import_apart("tkdebug.compiler.ir.printer")
        from tkdebug.compiler.ir.printer import print_module

        return print_module(self.gpu_module)

    def _init_handles(self) -> None:
        """Load the binary and make `submit` from it.

        Raises:
            OutOfResources: the device has less than the kernel needs.
            NoDeviceError: there is no GPU.
            CudaError: the driver refuses.
        """
        if self.function is not None:
            return
        platform = self._platform()
        platform.require()
        LOAD_HOOKS.loading(self)
        try:
            loaded = platform.load(self)
        except OutOfResources as error:
            locate(error, self.src)
            raise
        self.n_regs = loaded.registers
        self.n_spills = loaded.spills
        self.n_max_threads = loaded.max_threads
        self.submit = loaded.submit
        self.module = loaded.module
        self.function = loaded.function
        LOAD_HOOKS.loaded(self)

    def _platform(self) -> Platform:
        """The platform it is launched on.

        Raises:
            NoDeviceError: that is another kind of device than it is compiled for.
        """
        platform = platform_in_force()
        if self._backend != platform.backend:
            raise NoDeviceError(
                f"compiled kernel {self.name}: it is for {self.binary.target} ({self._backend}), "
                f"the devices here are {platform.backend}'s; compile it for one of theirs"
            )
        return platform

    def new_workspace(self, size_bytes: int, alignment: int, stream: int) -> Buffer:
        """Allocate the memory that one launch gives to its programs."""
        return make_workspace(size_bytes, alignment, self.device, stream)

    def _load_and_submit(
        self, x: int, y: int, z: int, stream: int, *passed: Any
    ) -> NativeKernel | None:
        self._init_handles()
        return self.submit(x, y, z, stream, *passed)

    def submit_by_pointers(self, x: int, y: int, z: int, stream: int, *passed: Any) -> NativeKernel:
        """Launch and return this kernel compiled without tensor maps that launches make."""
        self._without_host_descriptors.submit(x, y, z, stream, *passed)
        return self._without_host_descriptors

    @cached_property
    def _without_host_descriptors(self) -> NativeKernel:
        """Return this kernel compiled without tensor maps that launches make."""
        return self._recompile(replace(self.src, host_tma_descriptors=False), self.device)

    def launch(self, grid: Grid, values: tuple[Any, ...], stream: int | None = None) -> None:
        """Run on `grid`, none of whose axes is 0, with a value for each parameter.

        Raises:
            PointerError: a tensor that the kernel's device cannot access.
            CudaError: the driver refuses.
        """
        stream, passed = self.launch_arguments(values, stream)
        if HOOKS.launch:
            self.launch_hooked(grid, stream, values, passed)
        else:
            self.submit(*grid, stream, *passed)

    def launch_arguments(
        self, values: tuple[Any, ...], stream: int | None
    ) -> tuple[int, tuple[Any, ...]]:
        """Return the stream to launch on, and the arguments of `submit` for these values.

        Raises:
            PointerError: a tensor that the kernel's device cannot access.
            NoDeviceError: the current device is another.
        """
        platform = self._platform()
        platform.require()
        device_now, stream_of = platform.getters()
        current = device_now()
        if current != self.device:
            raise NoDeviceError(
                f"compiled kernel {self.name}: it is loaded on cuda:{self.device}, the current "
                f"device is cuda:{current}; launch inside `with torch.cuda.device({self.device}):`"
            )
        if stream is None:
            stream = stream_of(current)
        passed = tuple(
            self._passed(platform, parameter.name, value)
            for parameter, value in zip(self.src.fn.params, values, strict=True)
            if not parameter.is_constexpr
        )
        return stream, passed

    def _passed(self, platform: Platform, name: str, value: Any) -> Any:
        if isinstance(self.src.arguments[name], Constant) or isinstance(value, TensorDescriptor):
            return value
        if is_tensor_like(value):
            return platform.accessible_address(self.name, name, value, self.device)
        return value

    def launch_hooked(
        self,
        grid: Grid,
        stream: int,
        values: tuple[Any, ...],
        passed: tuple[Any, ...],
        checks: CheckedLaunch | None = None,
    ) -> None:
        """Launch with hooks around it, without waiting for the kernel.

        Args:
            grid: programs along x, y and z.
            stream: handle of the CUDA stream.
            values: a value for each parameter.
            passed: the arguments of `submit`.
            checks: makes the launch in the place of `submit`.
        """
        self._init_handles()  # hooks look at the loaded kernel
        record: Any = self.launch_record(next_launch_id(), grid, stream, values, time_ns())
        hooks = HOOKS.enter(self, record)
        submit = self.submit if checks is None else checks.submit_as(record.id)
        ran = None
        started_ns = perf_counter_ns()
        try:
            if HOOKS.timed:
                ran = self._submit_timed(submit, record, grid, stream, passed)
            else:
                ran = submit(*grid, stream, *passed)
        except BaseException as error:
            record.error = f"{type(error).__name__}: {error}"
            raise
        finally:
            record.duration_ns = perf_counter_ns() - started_ns
            if IN_FLIGHT.is_on:
                IN_FLIGHT.add(ran or self, record, passed)
            HOOKS.exit(hooks, self, record)

    def launch_recorded(
        self, grid: Grid, stream: int, values: tuple[Any, ...], passed: tuple[Any, ...]
    ) -> None:
        """Launch with hooks around it, or only pack its record if the hooks ask for no more.

        Args:
            grid: programs along x, y and z.
            stream: handle of the CUDA stream.
            values: a value for each parameter.
            passed: the arguments of `submit`.
        """
        packer = HOOKS.packer
        if packer is None:
            self.launch_hooked(grid, stream, values, passed)
            return
        note = packer.notes.get(self) or packer.note_of(self)
        start_ns = time_ns()
        try:
            ran = self.submit(*grid, stream, *passed)
        except BaseException as error:
            self.tell_failed(error, grid, stream, values, start_ns)
            raise
        number = next_launch_id()
        note(number, *grid, stream, start_ns, *values)
        if IN_FLIGHT.is_on:
            place = IN_FLIGHT.place_from(sys._getframe(1)) or NOWHERE  # noqa: SLF001
            launched = (IN_FLIGHT.ordinal(), number, ran or self, *grid, stream)
            IN_FLIGHT.keep((*launched, packer, *place, *plain(passed)))

    def tell_failed(
        self,
        error: BaseException,
        grid: Grid,
        stream: int,
        values: tuple[Any, ...],
        start_ns: int,
    ) -> None:
        """Report to hooks a launch that raised before it had a record."""
        record = self.launch_record(next_launch_id(), grid, stream, values, start_ns)
        hooks = HOOKS.enter(self, record)
        record.duration_ns = time_ns() - start_ns
        record.error = f"{type(error).__name__}: {error}"
        HOOKS.exit(hooks, self, record)

    @cached_property
    def run(self) -> Callable[..., None]:
        """The function that launches with all arguments by position, as upstream's `run`."""
        # Only what torch's compiler launches is launched so.
        from tkdebug.runtime.launch.launch_writer import write_run

        return write_run(self)

    @cached_property
    def parameter_kinds(self) -> tuple[str, ...]:
        """The kind of each parameter, as `hook_chain.PackableKernel` has it."""
        return tuple(map(_kind, self.src.arguments.values()))

    @cached_property
    def passes_plain(self) -> bool:
        """Whether launches are passed nothing but addresses and numbers."""
        return "other" not in self.parameter_kinds

    def write_note(self, parts: NoteParts) -> Callable[..., None]:
        """Write the function that packs the record of each launch."""
        from tkdebug.runtime.launch.launch_writer import write_note  # it imports this

        return write_note(parts)

    @cached_property
    def _timer(self) -> SpanTimer:
        return self._platform().span_timer(self.device)

    def _submit_timed(
        self,
        submit: Callable[..., NativeKernel | None],
        record: LaunchRecord,
        grid: Grid,
        stream: int,
        passed: tuple[Any, ...],
    ) -> NativeKernel | None:
        """Submit between two events that time it for the record; return what `submit` returns."""
        span = self._timer.start(stream)
        ran = submit(*grid, stream, *passed)
        if span is not None:
            span.end()
            record.device_ns = span
        return ran


def _kind(spec: ArgSpec) -> str:
    if isinstance(spec, Constant):
        return "fixed"
    if isinstance(spec, pointer_type):
        return "tensor"
    if not isinstance(spec, dtype):
        return "other"
    if spec.is_floating():
        return "float"
    if spec.is_bool():
        return "look"
    return "uint" if spec.is_int_unsigned() else "int"


def locate(error: OutOfResources, src: Specialization) -> None:
    """Add to `error` the kernel's line, and the options and blocks to lower, with their values.

    `num_stages` is never among them: loops get no more buffers than there is room for, so a kernel
    that does not fit needs as much with one stage, too.
    """
    source = src.fn.kernel_source
    line = source.definition.lineno
    error.place = f"{shown_path(source.file)}:{line}"
    error.source_line = (source.line(line) or "").strip()
    lower = " or ".join(_lowerable(error.name, src))
    if lower:
        error.advice = f"lower {lower}"


def _lowerable(resource: str, src: Specialization) -> Iterator[str]:
    options = src.options
    if resource in ("threads", "registers") and options.num_warps > 1:
        yield f"num_warps={options.num_warps}"
    if resource == "threads":
        return
    if resource == "registers":
        yield "maxnreg" if options.maxnreg is None else f"maxnreg={options.maxnreg}"
    blocks = [
        f"{name}={value}"
        for name, value in src.constants.items()
        if type(value) is int and value >= _LEAST_BLOCK and value & (value - 1) == 0
    ]
    yield f"the blocks ({', '.join(blocks[:_MAX_BLOCKS])})" if blocks else "the blocks"
