"""A kernel that is interpreted: its Tile IR, compiled in the thread that wants it, and launches.

Also responsible for the figures that only a native kernel has, which are estimates.

Tensors of a launch that have no memory which one kernel could access are refused. The interpreter
could read both host memory and a GPU's; the GPU that the script means cannot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from tkdebug.errors import UnsupportedError
from tkdebug.knobs import KNOBS
from tkdebug.process.apart_imports import import_apart
from tkdebug.records.events import LaunchRecord, next_launch_id
from tkdebug.records.hook_chain import HOOKS
from tkdebug.runtime.arguments.specialize import runtime_values
from tkdebug.runtime.compile.compilation import (
    announce,
    compile_tile_ir,
    snapshot_recorder,
    tell_failure,
)
from tkdebug.runtime.compile.cross_compilation import cross_compile
from tkdebug.runtime.compile.specialization import Specialization
from tkdebug.runtime.device.driver import driver
from tkdebug.runtime.errors import PointerError
from tkdebug.runtime.launch.breakpoints import debugger_of_breakpoints
from tkdebug.runtime.launch.compiled_kernel import Artifacts, CompiledKernel, KernelMetadata
from tkdebug.runtime.launch.graph_capture import capture_in_force
from tkdebug.runtime.launch.requests import Grid
from tkdebug.runtime.watched_values import architecture, hand_out, launch_watcher

if TYPE_CHECKING:
    import torch

    from tkdebug.compiler.analysis.thread_order import ThreadOrder
    from tkdebug.compiler.frontend.scope import UsedGlobal
    from tkdebug.compiler.ir import Module, SourceLocation
    from tkdebug.interpreter.launch_profile import LaunchProfile
    from tkdebug.interpreter.observers import CompiledFacts
    from tkdebug.interpreter.scheduler import Room
    from tkdebug.runtime.advising.launches import Advisor
    from tkdebug.runtime.compile.native_compilation import NativeCompilation
    from tkdebug.runtime.instrumentation.measuring import Kernel

_NATIVE_STAGES = ("ttgir", "gpu-ir", "llir", "llvm-ir", "ptx", "cubin", "sass")


class Estimate(int):
    """An estimate of a positive number that only native compilation knows.

    Interpreted kernels have no registers and no shared memory, yet scripts divide by a kernel's use
    of them.
    """


CrossCompile = Callable[
    ["Specialization", Sequence[Any], "dict[object, NativeCompilation | None]"],
    "NativeCompilation | None",
]


class InterpretedKernel(CompiledKernel):
    """A kernel whose launches are interpreted.

    Attributes:
        module: the kernel's Tile IR after the passes.
        breakpoints: the places where it calls `breakpoint()`.
        cross_compile: compiles it for an architecture that is not there, given its specialisation,
            the values of a launch, and the specialisations compiled already.
    """

    mode = "interpret"
    n_regs = Estimate(32)
    n_spills = Estimate(0)
    n_max_threads = Estimate(1024)

    def __init__(
        self,
        src: Specialization,
        module: Module,
        used_globals: tuple[UsedGlobal, ...] = (),
        breakpoints: tuple[SourceLocation, ...] = (),
        cross_compile: CrossCompile | None = None,
    ) -> None:
        super().__init__(src, used_globals)
        self.module = module
        self.breakpoints = breakpoints
        self.cross_compile = cross_compile
        self._cross_compiled: dict[object, NativeCompilation | None] = {}
        self._compilation: NativeCompilation | None = None
        self._thread_orders: dict[Hashable, ThreadOrder | None] = {}
        self.asm = Artifacts(
            self.name,
            {"source": lambda: src.fn.kernel_source.text, "ttir": lambda: self.tile_ir},
            {"tile-ir": "ttir"},
            {
                stage: f"it was compiled for interpretation and has no {stage}"
                for stage in _NATIVE_STAGES
            },
        )

    @cached_property
    def metadata(self) -> KernelMetadata:
        """The facts that scripts read off the kernel; `shared` is an estimate."""
        shared = Estimate(1024 * self.src.options.num_warps)
        return self._make_metadata(shared, driver.active.get_current_target())

    @cached_property
    def tile_ir(self) -> str:
        """The Tile IR after its passes, as text."""
        import_apart("tkdebug.compiler.ir.printer")
        from tkdebug.compiler.ir.printer import print_module

        return print_module(self.module)

    def launch(self, grid: Grid, values: tuple[Any, ...], stream: int | None = None) -> None:
        """Run on `grid`, none of whose axes is 0, with a value for each parameter."""
        if KNOBS.cross_compile is not None and self.cross_compile is not None:
            # Before the launch, whose time it is no part of.
            self._compilation = self.cross_compile(self.src, values, self._cross_compiled)
        capture = capture_in_force()
        if capture is None:
            self._launch(grid, values, is_reported=True)
        else:
            with capture.recording(self, grid, values):
                # A GPU would run nothing yet: what is wrong is reported when the graph is replayed.
                self._launch(grid, values, is_reported=False)

    def _launch(self, grid: Grid, values: tuple[Any, ...], is_reported: bool) -> None:
        follower = HOOKS.follower
        before = None if follower is None else follower.begins(values)
        launch_id = self._hooked(grid, values, is_reported) if HOOKS.launch else 0
        if not launch_id:
            self._execute(grid, values, None, is_reported)
        if follower is not None:
            follower.ended(self, grid, values, launch_id, before)

    def _hooked(self, grid: Grid, values: tuple[Any, ...], is_reported: bool) -> int:
        """Launch with hooks around it, and return the launch's id."""
        record = self.launch_record(next_launch_id(), grid, 0, values, time.time_ns())
        hooks = HOOKS.enter(self, record)
        started_ns = time.perf_counter_ns()
        try:
            self._execute(grid, values, record, is_reported)
        except BaseException as error:
            record.error = f"{type(error).__name__}: {error}"
            raise
        finally:
            record.duration_ns = time.perf_counter_ns() - started_ns
            HOOKS.exit(hooks, self, record)
        return record.id

    def launch_nothing(self, grid: Grid, values: tuple[Any, ...]) -> None:
        """Report outputs that a grid with an axis of 0 leaves unwritten, if that is asked for."""
        from tkdebug.interpreter.launch import look_at_empty_launch

        look_at_empty_launch(self.module, runtime_values(self.src.specs, values), grid, self.name)

    def stored_to(self, values: tuple[Any, ...]) -> list[torch.Tensor]:
        """The tensors that a launch with `values` may store to."""
        from tkdebug.interpreter.launch import stored_tensors

        return stored_tensors(self.module, runtime_values(self.src.specs, values))

    def _execute(
        self, grid: Grid, values: tuple[Any, ...], record: LaunchRecord | None, is_reported: bool
    ) -> None:
        from tkdebug.interpreter.launch import run_module

        refuse_unfit_tensors(self.name, self.src.fn.arg_names, values)
        if (HOOKS.debugger is not None or self.breakpoints) and is_reported:
            debugger = HOOKS.debugger or debugger_of_breakpoints(self.breakpoints)
            if debugger is not None and debugger.launch(self, grid, values, record):
                return
        given = runtime_values(self.src.specs, values)
        arguments = dict(zip(self.src.fn.arg_names, values, strict=True))
        profile = self._profile(grid, values)
        launch_id = 0 if record is None else record.id
        watcher = None
        if self.src.checks is not None and is_reported:
            watcher = launch_watcher(self.module, self.src.checks, self.name, launch_id, grid)
        run_module(
            self.module,
            given,
            grid,
            record,
            self.name,
            is_reported=is_reported,
            arguments=arguments,
            observers=[one for one in (profile, watcher) if one is not None],
            compiled=self.compiled_facts(values),
        )
        if watcher is not None:
            hand_out(watcher.seen(), watcher.launch, lambda: self._as_instrumented(values))
        if profile is not None and self._compilation is not None:
            self._advisor.launched(profile, self._compilation, grid, launch_id)

    def compiled_facts(self, values: tuple[Any, ...]) -> CompiledFacts:
        """Return facts about the kernel as a GPU would run it, which are found when asked for."""
        from tkdebug.interpreter.observers import CompiledFacts

        return CompiledFacts(lambda: self._room(values), lambda: self._order_of_threads(values))

    def _room(self, values: tuple[Any, ...]) -> Room:
        """Return the room of a GPU for programs of a launch with `values`."""
        from tkdebug.interpreter.scheduler import Room

        device = driver.active.get_current_device()
        count = driver.active.utils.get_device_properties(device)["multiprocessor_count"]

        def fitting() -> tuple[int, str]:
            from tkdebug.runtime.compile.debugged_stages import fitting_programs

            return fitting_programs(self._source_for_gpu(values), self.module, count)

        return Room(count, fitting)

    def _order_of_threads(self, values: tuple[Any, ...]) -> ThreadOrder | None:
        """Return the order of threads in a launch, found once for each alignment of `values`."""
        from tkdebug.runtime.compile.debugged_stages import order_of_threads

        src = self._source_for_gpu(values)
        if src.alignment not in self._thread_orders:
            self._thread_orders[src.alignment] = order_of_threads(src, self.module)
        return self._thread_orders[src.alignment]

    def _source_for_gpu(self, values: tuple[Any, ...]) -> Specialization:
        from tkdebug.runtime.compile.debugged_stages import source_for_gpu

        return source_for_gpu(self.src, None, values)

    def _as_instrumented(self, values: tuple[Any, ...]) -> Kernel:
        """Return the kernel for plugins, as native code would be for a launch's values."""
        from tkdebug.runtime.arguments.specialize import alignment_key, arg_divisibility
        from tkdebug.runtime.instrumentation.measuring import Kernel

        src = self.src
        divisors = arg_divisibility(src.specs, alignment_key(src.fn.params, values))
        return Kernel(self.module, architecture(src), src.options.num_warps, divisors)

    def _profile(self, grid: Grid, values: tuple[Any, ...]) -> LaunchProfile | None:
        """Return the observer that counts a launch's work; None if no advice is asked for."""
        if not KNOBS.advise or self._compilation is None:
            return None
        return self._advisor.observer(grid, values)

    @cached_property
    def _advisor(self) -> Advisor:
        from tkdebug.runtime.advising.launches import Advisor
        from tkdebug.runtime.compile.compilation import compile_bare

        src = self.src
        bare = None if src.checks is None else partial(compile_bare, src)
        return Advisor(self.name, self.hash, self.module, bare)


def compile_kernel(src: Specialization) -> InterpretedKernel:
    """Compile for interpretation and report to the hooks.

    Raises:
        CompileError: the kernel's source is wrong or not available; also reported as a fault.
        UnsupportedError: an option that interpretation cannot honour.
    """
    if src.options.ir_override is not None:
        raise UnsupportedError(
            f"kernel {src.fn.__name__}: option ir_override is not supported under interpret"
        )
    recorder = snapshot_recorder(src)
    started_ns = time.perf_counter_ns()
    try:
        tile = compile_tile_ir(src, recorder)
    except Exception as error:
        tell_failure(src, recorder, error, time.perf_counter_ns() - started_ns)
        raise
    kernel = InterpretedKernel(src, tile.module, tile.used_globals, tile.breakpoints, cross_compile)
    announce(kernel, recorder, {}, {}, time.perf_counter_ns() - started_ns)
    return kernel


def refuse_unfit_tensors(kernel: str, names: Sequence[str], values: Sequence[Any]) -> None:
    """Refuse tensors without memory, and tensors in host memory beside tensors on a GPU.

    Raises:
        PointerError: a tensor does not fit; the message names the first one.
    """
    if len(_places(kernel, names, values)) > 1:
        _refuse_mixed_places(kernel, names, values)


def _refuse_mixed_places(kernel: str, names: Sequence[str], values: Sequence[Any]) -> None:
    places = [(name, value, value.device.type) for name, value in _tensors(names, values)]
    if not any(place == "cuda" for _, _, place in places):
        return
    # A tensor without elements is nowhere.
    places = [(name, value, place) for name, value, place in places if value.numel()]
    on_gpu = [name for name, _, place in places if place == "cuda"]
    if not on_gpu:
        return
    for name, value, place in places:
        if place == "cpu" and not value.is_pinned():
            raise PointerError(
                f"kernel {kernel}: argument `{name}` is on cpu, `{on_gpu[0]}` on cuda: Pointer "
                "argument cannot be accessed from Triton (cpu tensor?); move it with "
                ".to('cuda'), or pin its memory"
            )


def _places(kernel: str, names: Sequence[str], values: Sequence[Any]) -> set[str]:
    """Return the kinds of device that hold the storages of a launch's tensors.

    Raises:
        PointerError: a tensor has no memory, or none that an address and strides describe; the
            message names the first one.
    """
    import torch  # as below

    places: set[str] = set()
    # The places of the tensors themselves: functions of subclasses are not asked.
    with torch._C.DisableTorchFunction():  # noqa: SLF001
        for name, value in _tensors(names, values):
            try:
                storage = _storage(torch, value)
            except (_MemoryProblem, RuntimeError, ValueError) as error:
                problem = error if isinstance(error, _MemoryProblem) else _without(value, error)
                raise PointerError(f"kernel {kernel}: argument `{name}` is {problem}") from None
            places.add(storage.device.type)
    return places


class _MemoryProblem(Exception):
    """The reason why a kernel cannot access a tensor, in words that follow "is"."""


def _without(value: Any, error: Exception) -> str:
    # It imports the readers of packages' metadata.
    from tkdebug.compiler.targets.machine_parts import first_sentence

    kind = type(value).__name__
    named = "tensor" if kind == "Tensor" else f"tensor of class {kind}"
    return f"a {named} without memory ({first_sentence(error)})"


def _storage(torch: Any, value: Any) -> Any:
    """Return the storage of a tensor, which has all of its elements.

    Raises:
        _MemoryProblem: the tensor has no memory, too little, or none that an address and strides
            describe.
        RuntimeError, ValueError: torch says that it has none.
    """
    if value.is_nested:
        raise _MemoryProblem(
            "a nested tensor, whose rows differ in length; pass its values() and offsets()"
        )
    if value.layout is not torch.strided:
        raise _MemoryProblem(
            f"a tensor of layout {value.layout}; pass .to_dense(), or its values and indices"
        )
    storage = value.untyped_storage()
    if storage.device.type == "meta":
        kind = "meta tensor" if value.is_meta else type(value).__name__
        raise _MemoryProblem(f"a {kind}, which has no memory; pass one of a device")
    needed_bytes = (value.storage_offset() + _span(torch, value)) * value.element_size()
    if storage.nbytes() < needed_bytes and value.numel():
        raise _MemoryProblem(
            f"a tensor that spans {needed_bytes} bytes of a storage that was resized to "
            f"{storage.nbytes()}: its memory has been freed"
        )
    storage.data_ptr()  # raises for a subclass that only wraps another tensor
    return storage


def _span(torch: Any, value: Any) -> int:
    """Return the number of elements from a tensor's first to its last, gaps included."""
    # A subclass may answer for its strides alone.
    if value.__class__ is torch.Tensor and value.is_contiguous():
        return int(value.numel())
    span = 1
    for size, stride in zip(value.shape, value.stride(), strict=True):
        span += (size - 1) * stride
    return span


def _tensors(names: Sequence[str], values: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    import torch  # a kernel is interpreted by it anyway

    for name, value in zip(names, values, strict=False):
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, tuple):
            yield from _tensors([name] * len(value), value)
        elif hasattr(value, "base"):
            yield from _tensors([name], [value.base])
