"""The part that all compiles of kernels share: front end, pass pipeline, artifacts.

Responsible for the order of the stages, for handing the result to hooks, and for the knobs that
write stages to a directory or take edited ones from it. Snapshots are taken only when a hook asks
for them.
"""

from __future__ import annotations

import contextlib
import io
import time
import warnings
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, cast

from tkdebug.compiler.passes import TILE_PIPELINE, run_pipeline, with_plugins
from tkdebug.errors import CompileError, Frame, TkError
from tkdebug.findings.reporting import report
from tkdebug.knobs import KNOBS
from tkdebug.process.apart_imports import import_apart
from tkdebug.records.events import Fault, KernelCompiled
from tkdebug.records.hook_chain import HOOKS
from tkdebug.runtime.compile.specialization import Specialization
from tkdebug.runtime.compile.stage_files import TILE_IR_FILE, StageDump, StageOverride
from tkdebug.runtime.device.driver import compute_capability, driver
from tkdebug.runtime.launch.compiled_kernel import CompiledKernel
from tkdebug.runtime.launch.first_launch import load_what_launches_import
from tkdebug.runtime.upstream_hooks import COMPILE_HOOKS
from tkdebug.runtime.watched_values import architecture, note_compiled, record_operands

if TYPE_CHECKING:
    from tkdebug.compiler.artifacts import SnapshotRecorder
    from tkdebug.compiler.frontend import TileModule
    from tkdebug.compiler.frontend.arguments import JitCallable
    from tkdebug.compiler.frontend.scope import UsedGlobal
    from tkdebug.compiler.frontend.source import KernelSource
    from tkdebug.compiler.frontend.variables import VariableRecorder
    from tkdebug.compiler.ir import Module, SourceLocation
    from tkdebug.compiler.ops.emitter import CompileOptions

# Set while a tuner tries a configuration: it takes another where one does not compile.
TRYING: ContextVar[bool] = ContextVar("tkdebug_trying", default=False)


@dataclass(frozen=True, slots=True)
class TileStage:
    """A kernel as Tile IR after its passes.

    Attributes:
        used_globals: module-level values it was compiled with.
        breakpoints: the places where it calls `breakpoint()`.
    """

    module: Module
    used_globals: tuple[UsedGlobal, ...]
    breakpoints: tuple[SourceLocation, ...] = ()


def snapshot_recorder(src: Specialization) -> SnapshotRecorder | None:
    """Return the recorder of one compile's snapshots, or None if nobody wants them.

    The passes of a build that adds only checks are not recorded: readers want the bare build's.
    """
    load_what_launches_import()  # the hooks of plugins are there from then on
    if not HOOKS.wants_compiled() and COMPILE_HOOKS.listener is None:
        return None
    import_apart("tkdebug.compiler.artifacts")
    from tkdebug.compiler.artifacts import SnapshotRecorder

    has_only_checks = _instrumentation(src).keys() == {"checked"}
    return SnapshotRecorder(each_pass=not has_only_checks)


def compile_tile_ir(src: Specialization, recorder: SnapshotRecorder | None = None) -> TileStage:
    """Compile to Tile IR, the part that does not depend on the mode; hooks hear nothing yet.

    Args:
        src: the specialisation to compile.
        recorder: takes snapshots.

    Raises:
        CompileError: the kernel's source is wrong or not available.
    """
    started_ns = time.perf_counter_ns()
    front_end = _compile_source(src)
    override = StageOverride.of(src)
    # An edited file replaces what the front end made, before any pass.
    module = (None if override is None else override.tile_ir()) or front_end
    front_end_ns = time.perf_counter_ns() - started_ns
    note_arguments(src, module)
    if recorder is not None:
        recorder.take(module, front_end_ns)
    _run_passes(src, module, recorder)
    if src.checks is not None and src.checks.instrumentations:
        names = src.checks.instrumentations
        record_operands(module, names, architecture(src), src.options.num_warps)
    used_globals = tuple(front_end.used_globals.values())
    return TileStage(module, used_globals, front_end.breakpoints)


def note_arguments(src: Specialization, module: Module) -> None:
    """Note in the front end's module the facts of its arguments."""
    # Only the compiler of a kernel imports the dialects.
    from tkdebug.compiler.dialects import tt
    from tkdebug.compiler.ops.descriptors import MAPPABLE

    if src.arg_divisibility is not None:
        tt.Func(module.function).arg_divisibility = src.arg_divisibility
    if src.mappable:
        module.function.attributes[MAPPABLE] = src.mappable


def compile_for_debugger(src: Specialization, recorder: VariableRecorder) -> TileModule:
    """The front end's Tile IR, before any pass, with the variables' values at each line.

    Args:
        src: the specialisation to compile; its kernel was compiled before.
        recorder: notes the variables.
    """
    # Its warnings and prints were seen when it was compiled to be launched.
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        return _compile_source(src, recorder)


def compile_bare(src: Specialization) -> Module:
    """Return the Tile IR, after its passes, of a kernel without its watches."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        return compile_tile_ir(replace(src, checks=None)).module


def compile_with_sources(
    src: Specialization, sources: Mapping[FunctionType, KernelSource]
) -> TileModule:
    """The front end's Tile IR of a kernel with other sources of some of its functions.

    Raises:
        CompileError: the kernel does not compile with them.
    """
    from tkdebug.compiler.frontend import compile_to_tile_ir

    kernel = cast("JitCallable", src.fn)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        return compile_to_tile_ir(kernel, src.arguments, _language_options(src), sources=sources)


def _compile_source(src: Specialization, recorder: VariableRecorder | None = None) -> TileModule:
    from tkdebug.compiler.frontend import compile_to_tile_ir

    _refuse_unspecialized_constants(src)
    # mypy takes a FunctionType attribute of a Protocol for a bound method.
    kernel = cast("JitCallable", src.fn)
    watches = () if src.checks is None else src.checks.watches
    module = compile_to_tile_ir(kernel, src.arguments, _language_options(src), recorder, watches)
    if watches and recorder is None:
        note_compiled(module)
    return module


def _refuse_unspecialized_constants(src: Specialization) -> None:
    for parameter in src.fn.params:
        if parameter.is_constexpr and parameter.do_not_specialize:
            source = src.fn.kernel_source
            raise CompileError(
                f"{parameter.name} marked as constexpr and listed in do_not_specialize; "
                "take it out of one of them",
                frames=(Frame(source.file, source.first_line, src.fn.__name__),),
                kernel=src.fn.__name__,
            )


def _language_options(src: Specialization) -> CompileOptions:
    from tkdebug.compiler.ops.emitter import CompileOptions

    options = src.options
    return CompileOptions(
        num_warps=options.num_warps,
        threads_per_warp=driver.active.get_current_target().warp_size,
        num_stages=options.num_stages,
        num_ctas=options.num_ctas,
        arch=compute_capability(options.arch),
        debug=options.debug,
        sanitize_overflow=options.debug and options.sanitize_overflow,
        default_dot_input_precision=options.default_dot_input_precision,
        triton_version=_language_version(),
    )


def _language_version() -> tuple[int, int]:
    major, minor = KNOBS.triton_version.split(".")
    return int(major), int(minor)


def tell_compile_error(kernel: str, error: CompileError) -> None:
    """Report a compile error to the hooks as a fault, unless a tuner tries configurations."""
    if not TRYING.get():
        report(
            Fault(
                kind="compile-error",
                kernel=kernel,
                frames=error.frames,
                message=error.message,
                column=error.column,
            )
        )


def _run_passes(src: Specialization, module: Module, recorder: SnapshotRecorder | None) -> None:
    dump = StageDump.of(src)
    if dump is not None:
        dump.write("source.py", src.fn.kernel_source.text)
        dump.write_ir(TILE_IR_FILE, module)
    run_pipeline(
        module,
        with_plugins(TILE_PIPELINE, "tile"),
        snapshot=None if dump is None else partial(dump.write_snapshot, "tile-ir"),
        on_run=None if recorder is None else recorder.after_run,
    )
    if recorder is not None:
        recorder.finish(module)


def announce(
    kernel: CompiledKernel,
    recorder: SnapshotRecorder | None,
    texts: Mapping[str, str],
    lines: Mapping[str, Mapping[int, tuple[Frame, ...]]],
    compile_ns: int,
    cache_hit: bool = False,
    line_table: Callable[[], Mapping[str, object]] | None = None,
    image: Callable[[], bytes] | None = None,
) -> None:
    """Report a compiled kernel to the hooks, if one wants it.

    Args:
        kernel: the kernel.
        recorder: its snapshots; None if no hook wants them.
        texts: further stages by name.
        lines: the source frames of their lines.
        compile_ns: the time of the compile.
        cache_hit: whether code generation was spared.
        line_table: makes the line table's data.
        image: gives the object file.
    """
    if recorder is not None:
        event = _event(kernel.src, recorder, compile_ns)
        event = replace(
            event,
            artifacts={**event.artifacts, **texts},
            op_lines={**event.op_lines, **lines},
            cache_hit=cache_hit,
            line_table=line_table,
            image=image,
        )
        HOOKS.compiled(event)
        if COMPILE_HOOKS.listener is not None:
            COMPILE_HOOKS.listener(kernel, event)


def tell_failure(
    src: Specialization, recorder: SnapshotRecorder | None, error: Exception, compile_ns: int
) -> None:
    """Report a kernel that failed to compile to the hooks: the fault, and its stages so far.

    Args:
        src: the specialisation that was compiled.
        recorder: its snapshots, none if the front end failed.
        error: why.
        compile_ns: the time of the compile until then.
    """
    if isinstance(error, CompileError):
        tell_compile_error(src.fn.__name__, error)
    if recorder is not None and recorder.snapshots:
        reason = str(error) if isinstance(error, TkError) else f"{type(error).__name__}: {error}"
        HOOKS.compiled(replace(_event(src, recorder, compile_ns), error=reason))


def _event(src: Specialization, recorder: SnapshotRecorder, compile_ns: int) -> KernelCompiled:
    from tkdebug.compiler.artifacts import kernel_artifacts

    source = src.fn.kernel_source
    artifacts, op_lines = kernel_artifacts(
        source.text, recorder.snapshots, file=source.file, first_line=source.first_line
    )
    return KernelCompiled(
        hash=src.hash,
        name=src.fn.__name__,
        file=source.file,
        line=source.first_line,
        source=source.text,
        signature=src.describe(),
        options={**src.options.as_dict(), **_instrumentation(src)},
        artifacts=artifacts,
        op_lines=op_lines,
        compile_ns=compile_ns,
        passes=tuple(recorder.passes),
        op_ids={snapshot.stage: snapshot.op_ids for snapshot in recorder.snapshots},
    )


def _instrumentation(src: Specialization) -> dict[str, object]:
    """Return the instrumentation that a kernel has beside its options."""
    if src.checks is None:
        return {}
    names = {
        "checked": bool(src.checks.kinds),
        "watched": bool(src.checks.watches or src.checks.instrumentations),
        "timeline": src.checks.timeline is not None,
    }
    return {name: True for name, is_so in names.items() if is_so}
