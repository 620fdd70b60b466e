"""A kernel compiled to a cubin, and its launches on one device.

Responsible for loading it when it is first launched, and for hooks around its launches. Packing and
the driver's calls are `runtime.cuda`'s. Invariant: a launch without hooks is `submit` alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tkdebug.compiler.frontend.arguments import Constant
from tkdebug.events import HOOKS
from tkdebug.runtime.arguments.specialize import is_tensor_like
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor
from tkdebug.runtime.compile.needed_resources import locate
from tkdebug.runtime.cuda.packing import kernel_slots
from tkdebug.runtime.cuda.tensor_maps import SIZE_BYTES
from tkdebug.runtime.device.driver import GPUTarget
from tkdebug.runtime.errors import NoDeviceError, OutOfResources
from tkdebug.runtime.launch.allocation import make_workspace
from tkdebug.runtime.launch.compiled_kernel import Artifacts, CompiledKernel
from tkdebug.runtime.launch.grid import Grid
from tkdebug.runtime.launch.launches_in_flight import IN_FLIGHT
from tkdebug.runtime.launch.load_hooks import LOAD_HOOKS

if TYPE_CHECKING:
    from tkdebug.compiler.frontend.scope import UsedGlobal
    from tkdebug.compiler.ir import Module
    from tkdebug.runtime.compile.specialization import Specialization
    from tkdebug.runtime.cuda.binary import Binary
    from tkdebug.runtime.cuda.launcher import LaunchShape
    from tkdebug.runtime.cuda.timing import SpanTimer
    from tkdebug.runtime.launch.allocation import Buffer

_BYTES_PER_REGISTER = 4


class NativeKernel(CompiledKernel):
    """A kernel that runs on CUDA device `device`.

    Attributes:
        binary: the compiled code.
        gpu_module: the GPU IR it was lowered from.
        module: the driver's handle of the loaded cubin; None before.
        submit: launches without hooks: `submit(x, y, z, stream, *arguments)`, an argument for each
            parameter that is not constexpr, tensors by their address. It returns the kernel that
            ran where that is not this one.
    """

    mode = "native"

    def __init__(
        self,
        src: Specialization,
        tile_ir: str,
        gpu_module: Module,
        binary: Binary,
        used_globals: tuple[UsedGlobal, ...],
        device: int,
    ) -> None:
        super().__init__(src, used_globals)
        self.gpu_module = gpu_module
        self._tile_ir = tile_ir
        self.binary = binary
        self.device = device
        self.kernel = binary.cubin
        self.module: int | None = None
        self.n_regs = binary.registers
        self.n_spills = binary.spill_bytes // _BYTES_PER_REGISTER
        self.n_max_threads = binary.threads
        self.metadata = self._make_metadata(
            binary.shared_bytes, _gpu_target(binary.target)
        )._replace(global_scratch_size=binary.workspace_bytes)
        self.asm = self._artifacts()
        self.submit: Callable[..., NativeKernel | None] = self._load_and_submit

    def _artifacts(self) -> Artifacts:
        binary = self.binary
        stages: dict[str, Callable[[], Any]] = {
            "source": lambda: self.src.fn.kernel_source.text,
            "ttir": lambda: self.tile_ir,
            "ttgir": lambda: self.gpu_ir,
            "llir": lambda: binary.llvm_ir,
            "ptx": lambda: binary.ptx,
            "cubin": lambda: binary.cubin,
            "sass": lambda: self.sass,
        }
        aliases = {"tile-ir": "ttir", "gpu-ir": "ttgir", "llvm-ir": "llir"}
        return Artifacts(self.name, stages, aliases, {})

    @property
    def tile_ir(self) -> str:
        """The Tile IR after its passes, as text."""
        return self._tile_ir

    @cached_property
    def gpu_ir(self) -> str:
        """The GPU IR as it is lowered, as text."""
        from tkdebug.compiler.ir.printer import print_module

        return print_module(self.gpu_module)

    @cached_property
    def sass(self) -> str:
        """The machine code as text.

        Raises:
            TkError: nvdisasm is not installed.
        """
        from tkdebug.compiler.targets.nvptx.disassembly import disassemble

        return disassemble(self.binary.cubin)

    def _init_handles(self) -> None:
        """Load the binary and make `submit` out of it.

        Raises:
            OutOfResources: the device has less than the kernel needs.
            NoDeviceError: there is no GPU.
            CudaError: the driver refuses.
        """
        from tkdebug.runtime.cuda import device as devices
        from tkdebug.runtime.cuda.launcher import make_submit
        from tkdebug.runtime.cuda.module import load_kernel

        if self.function is not None:
            return
        devices.require_device()
        binary = self.binary
        device = devices.device(self.device)
        LOAD_HOOKS.loading(self)
        try:
            loaded = load_kernel(
                device, binary.cubin, binary.entry, binary.threads, binary.shared_bytes
            )
        except OutOfResources as error:
            locate(error, self.src)
            raise
        self.n_regs = loaded.registers
        self.n_spills = loaded.spills
        self.n_max_threads = loaded.max_threads
        names = self.src.fn.arg_names
        passed = [
            f"v{parameter.num}" for parameter in self.src.fn.params if not parameter.is_constexpr
        ]
        self.submit = make_submit(
            self.name,
            kernel_slots(names, self.src.specs, self.binary),
            passed,
            self._launch_shape(loaded.function),
            self._recover,
            by_pointers=self._submit_by_pointers,
            new_workspace=self._new_workspace,
        )
        self.module = loaded.module
        self.function = loaded.function
        LOAD_HOOKS.loaded(self)

    def _launch_shape(self, function: int) -> LaunchShape:
        from tkdebug.runtime.cuda.launcher import LaunchShape

        options = self.src.options
        return LaunchShape(
            function,
            self.binary.threads,
            self.binary.shared_bytes,
            # Code generation makes no use of clusters.
            1,
            options.launch_cooperative_grid,
            options.launch_pdl,
            self.binary.workspace_bytes,
        )

    def _new_workspace(self, size_bytes: int, stream: int) -> Buffer:
        return make_workspace(size_bytes, SIZE_BYTES, self.device, stream)

    def _load_and_submit(
        self, x: int, y: int, z: int, stream: int, *passed: Any
    ) -> NativeKernel | None:
        self._init_handles()
        return self.submit(x, y, z, stream, *passed)

    def _submit_by_pointers(
        self, x: int, y: int, z: int, stream: int, *passed: Any
    ) -> NativeKernel:
        self._without_launch_maps.submit(x, y, z, stream, *passed)
        return self._without_launch_maps

    @cached_property
    def _without_launch_maps(self) -> NativeKernel:
        """This kernel as it is without tensor maps that launches make."""
        from tkdebug.runtime.compile.native_compilation import compile_native_kernel

        return compile_native_kernel(replace(self.src, launch_maps=False), self.device)

    def _recover(self, status: int, is_last: bool) -> None:
        """Make another try possible after a launch that failed with `status`, or raise."""
        from tkdebug.runtime.cuda import driver_api
        from tkdebug.runtime.cuda.device import device

        if status in (driver_api.INVALID_CONTEXT, driver_api.NOT_INITIALIZED) and not is_last:
            # A thread that has called nothing of CUDA yet, such as autograd's.
            device(self.device).make_current()
            return
        raise driver_api.cuda_error(status, f"kernel {self.name}: launch")

    def launch(self, grid: Grid, values: tuple[Any, ...], stream: int | None = None) -> None:
        """Run on `grid`, none of whose axes is 0, with a value for each parameter.

        Raises:
            PointerError: a tensor that the kernel's device cannot access.
            CudaError: the driver refuses.
        """
        import torch

        from tkdebug.runtime.cuda.device import require_device

        require_device()
        current = int(torch._C._cuda_getDevice())  # noqa: SLF001
        if current != self.device:
            raise NoDeviceError(
                f"compiled kernel {self.name}: it is loaded on cuda:{self.device}, the current "
                f"device is cuda:{current}; launch inside `with torch.cuda.device({self.device}):`"
            )
        if stream is None:
            stream = int(torch._C._cuda_getCurrentRawStream(current))  # noqa: SLF001
        passed = tuple(
            self._passed(parameter.name, value)
            for parameter, value in zip(self.src.fn.params, values, strict=True)
            if not parameter.is_constexpr
        )
        if HOOKS.launch:
            self.launch_hooked(grid, stream, values, passed)
        else:
            self.submit(*grid, stream, *passed)

    def _passed(self, name: str, value: Any) -> Any:
        from tkdebug.runtime.cuda.pointers import accessible_address

        if isinstance(self.src.arguments[name], Constant) or isinstance(value, TensorDescriptor):
            return value
        if is_tensor_like(value):
            return accessible_address(self.name, name, value, self.device)
        return value

    def launch_hooked(
        self, grid: Grid, stream: int, values: tuple[Any, ...], passed: tuple[Any, ...]
    ) -> None:
        """Launch with hooks around it; nothing waits for the kernel.

        Args:
            grid: programs along x, y and z.
            stream: handle of the CUDA stream.
            values: a value for each parameter.
            passed: what `submit` takes.
        """
        if self.function is None:
            # Hooks look at the loaded function.
            self._init_handles()
        record = self._record(grid, values, stream)
        hooks = HOOKS.enter(self, record)
        started_ns = time.perf_counter_ns()
        ran: NativeKernel | None = None
        try:
            if HOOKS.timed:
                ran = self._submit_timed(record, grid, stream, passed)
            else:
                ran = self.submit(*grid, stream, *passed)
        except BaseException as error:
            record.error = f"{type(error).__name__}: {error}"
            raise
        finally:
            record.duration_ns = time.perf_counter_ns() - started_ns
            if IN_FLIGHT.watched:
                IN_FLIGHT.add(ran or self, record, passed)
            HOOKS.exit(hooks, self, record)

    @cached_property
    def _timer(self) -> SpanTimer:
        from tkdebug.runtime.cuda.device import device
        from tkdebug.runtime.cuda.timing import span_timer

        return span_timer(device(self.device))

    def _submit_timed(
        self, record: Any, grid: Grid, stream: int, passed: tuple[Any, ...]
    ) -> NativeKernel | None:
        span = self._timer.start(stream)
        ran = self.submit(*grid, stream, *passed)
        if span is not None:
            span.end()
            record.device_ns = span
        return ran


def _gpu_target(name: str) -> GPUTarget:
    from tkdebug.compiler.targets import target_of

    target = target_of(name)
    major, minor = target.capability
    return GPUTarget("cuda", major * 10 + minor, target.threads_per_warp)
