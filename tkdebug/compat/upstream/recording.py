"""`--compiler triton`: an installed Triton stays in place, and tkdebug's hooks hear of its kernels.

Upstream's own hooks stay the script's: tkdebug replaces the functions that make its compiled
kernels and their launchers, so that it hears of kernels that torch's compiler launches, too.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from time import perf_counter_ns, time_ns
from typing import TYPE_CHECKING, Any

from tkdebug.compat.after_torch import after_import
from tkdebug.compat.replacements import Replacements, set_option
from tkdebug.compat.upstream.pass_dumps import (
    FRONT_END,
    VARIABLE,
    Dump,
    Snapshot,
    caught_dumps,
    passes_of,
    snapshots_of,
)
from tkdebug.errors import TkError
from tkdebug.linemap.mlir_locations import Frames, mlir_frames, ptx_frames
from tkdebug.records.events import KernelCompiled, KernelLaunch, launch_type, next_launch_id
from tkdebug.records.hook_chain import HOOKS
from tkdebug.runtime.arguments.argument_infos import ArgumentInfos
from tkdebug.runtime.compile.specialization import signature_text
from tkdebug.runtime.device.platform import platform_in_force
from tkdebug.runtime.launch.launches_in_flight import IN_FLIGHT, NOWHERE

if TYPE_CHECKING:
    from tkdebug.records.launch_packing import NoteParts
    from tkdebug.runtime.device.platform import SpanTimer


class UpstreamRecorded:
    """The replacements in Triton, in force from its import until `restore`."""

    def __init__(self) -> None:
        self._replacements = Replacements()
        self._wanted = True
        after_import("triton", self._replace)
        after_import("torch._inductor.config", self._launch_by_triton)

    def _replace(self) -> None:
        if self._wanted:
            _record_compiles(self._replacements)
            _record_launches(self._replacements)

    def _launch_by_triton(self) -> None:
        """Leave out torch's own launcher of cubins, and kernels of it that Inductor has cached.

        It takes neither Triton's compiled kernels nor their launchers, so nobody would hear of its
        launches.
        """
        if self._wanted:
            from torch._inductor import config

            set_option(self._replacements, config, "use_static_cuda_launcher", False)

    def restore(self) -> None:
        """Put upstream's own back; a second call does nothing."""
        self._wanted = False
        self._replacements.restore()


def _record_compiles(replacements: Replacements) -> None:
    import triton
    import triton.compiler.compiler as compiler

    compile: Callable[..., Any] = compiler.compile

    @functools.wraps(compile)
    def announced(*arguments: Any, **keywords: Any) -> Any:
        if not HOOKS.wants_compiled():
            return compile(*arguments, **keywords)
        began_ns = time.time_ns()
        dumped = os.environ.get(VARIABLE) == "1"
        with caught_dumps(dumped) as dumps:
            made = compile(*arguments, **keywords)
        took_ns = time.time_ns() - began_ns
        is_cached = _written_ns(made.metadata_group) < began_ns
        HOOKS.compiled(UpstreamKernel(made).compiled(took_ns, is_cached, dumps))
        return made

    for owner in (compiler, triton.compiler, triton):
        replacements.set(owner, "compile", announced)


def _record_launches(replacements: Replacements) -> None:
    import triton.compiler.compiler as compiler
    from triton.runtime.driver import driver

    load: Any = compiler.CompiledKernel._init_handles  # noqa: SLF001  (makes the launcher)

    @functools.wraps(load)
    def loaded(self: Any) -> None:
        before = self._run
        load(self)
        if self._run is not before:
            self._run = UpstreamKernel(self).recorded(self._run, driver.active.get_current_device())

    replacements.set(compiler.CompiledKernel, "_init_handles", loaded)


def _written_ns(files: Any) -> int:
    """Return when the last of a kernel's files was written."""
    found = []
    for file in dict(files).values():
        try:
            found.append(os.stat(file).st_mtime_ns)
        except OSError:
            continue
    return max(found, default=0)


Run = Callable[..., Any]
# Upstream's names of stages, and those that sessions have.
STAGES = {"ttir": "ttir", "ttgir": "ttgir", "llir": "llvm-ir", "ptx": "ptx"}
_PLACES: Mapping[str, Callable[[str], dict[int, Frames]]] = {
    "ttir": mlir_frames,
    "ttgir": mlir_frames,
    "ptx": ptx_frames,
}


class UpstreamKernel:
    """Facts of a `CompiledKernel` of upstream's.

    Attributes:
        kernel: upstream's object.
        name: the name of the kernel.
        hash: upstream's, which is of the source, the options and the compiler.
        binary: None: only the cubin says something about its code.
        device: index of the device that it is loaded on.
    """

    binary = None

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.device = 0
        self.name: str = kernel.name
        self.hash: str = kernel.hash
        fn = getattr(kernel.src, "fn", None)
        self.fn: Any = fn
        names = list(getattr(fn, "arg_names", ()))
        kinds = {_name(key, names): str(kind) for key, kind in dict(kernel.src.signature).items()}
        self.signature = {name: kinds.get(name, "constexpr") for name in names or kinds}
        constants = dict(getattr(kernel.src, "constants", None) or {})
        self.constants = {_name(key, names): value for key, value in constants.items()}

    @property
    def module(self) -> int | None:
        """The driver's handle of the loaded cubin."""
        return self.kernel.module if isinstance(self.kernel.module, int) else None

    @property
    def function(self) -> object:
        """The driver's handle of the kernel."""
        return self.kernel.function

    @cached_property
    def options(self) -> Mapping[str, object]:
        """The options it was compiled with, as upstream's metadata has them."""
        metadata = self.kernel.metadata
        wanted = ("num_warps", "num_stages", "num_ctas", "maxnreg", "arch")
        found = {name: getattr(metadata, name, None) for name in wanted}
        return {name: value for name, value in found.items() if value is not None}

    @cached_property
    def launch_record(self) -> type[KernelLaunch]:
        """The type of the records of its launches."""
        infos = ArgumentInfos(self.signature, self.constants)
        return launch_type(self.name, "native", self.options, self.hash, infos.of)

    @cached_property
    def parameter_kinds(self) -> tuple[str, ...]:
        """The kind of each parameter, as `launch_packing.PackableKernel` has it."""
        return tuple(
            "fixed" if name in self.constants or kind == "constexpr" else _kind(kind)
            for name, kind in self.signature.items()
        )

    def write_note(self, parts: NoteParts) -> Callable[..., None]:
        """Write the function that packs the record of each launch."""
        from tkdebug.runtime.launch.launch_writer import write_note

        return write_note(parts)

    def recorded(self, run: Run, device: int) -> Run:
        """Return upstream's launcher with hooks around it; grids without programs have none.

        Args:
            run: upstream's launcher.
            device: the device that the kernel is loaded on.
        """
        self.device = device

        def launch(x: int, y: int, z: int, stream: int, *rest: Any) -> Any:
            if not HOOKS.launch or x <= 0 or y <= 0 or z <= 0:
                return run(x, y, z, stream, *rest)
            # Behind the function, two kinds of metadata and two hooks.
            return self._launch((x, y, z), stream, rest[5:], partial(run, x, y, z, stream, *rest))

        return launch

    def _launch(
        self, grid: tuple[int, int, int], stream: int, values: tuple[Any, ...], run: Run
    ) -> Any:
        packer = HOOKS.packer
        if packer is None:
            return self._launch_hooked(grid, stream, values, run)
        note = packer.notes.get(self) or packer.note_of(self)
        start_ns = time_ns()
        done = run()
        number = next_launch_id()
        note(number, *grid, stream, start_ns, *values)
        if IN_FLIGHT.is_on:
            place = IN_FLIGHT.place_from(sys._getframe(1)) or NOWHERE  # noqa: SLF001
            IN_FLIGHT.keep((IN_FLIGHT.ordinal(), number, self, *grid, stream, packer, *place))
        return done

    def _launch_hooked(
        self, grid: tuple[int, int, int], stream: int, values: tuple[Any, ...], run: Run
    ) -> Any:
        record: Any = self.launch_record(next_launch_id(), grid, stream, values, time_ns())
        hooks = HOOKS.enter(self, record)
        started_ns = perf_counter_ns()
        try:
            span = self._timer.start(stream) if HOOKS.timed else None
            done = run()
            if span is not None:
                span.end()
                record.device_ns = span
            return done
        except BaseException as error:
            record.error = f"{type(error).__name__}: {error}"
            raise
        finally:
            record.duration_ns = perf_counter_ns() - started_ns
            if IN_FLIGHT.is_on:
                IN_FLIGHT.add(self, record, ())  # type: ignore[arg-type]
            HOOKS.exit(hooks, self, record)

    @cached_property
    def _timer(self) -> SpanTimer:
        return platform_in_force().span_timer(self.device)

    def compiled(
        self, compile_ns: int, is_cached: bool, dumps: Sequence[Dump] = ()
    ) -> KernelCompiled:
        """The record of its compile.

        Args:
            compile_ns: the time that it took.
            is_cached: whether upstream had it on disk.
            dumps: upstream's dumps of its passes; without them, its stages are used.
        """
        texts = {
            ours: str(self.kernel.asm[theirs])
            for theirs, ours in STAGES.items()
            if theirs in self.kernel.asm
        }
        done = passes_of(snapshots_of(dumps) or _stages(texts))
        others = {name: text for name, text in texts.items() if name not in done.texts}
        file, line, source = _source_of(self.fn)
        cubin = self.kernel.asm["cubin"] if "cubin" in self.kernel.asm else b""
        return KernelCompiled(
            hash=self.hash,
            name=self.name,
            file=file,
            line=line,
            source=source,
            signature=signature_text(self.signature, self.constants),
            options={**self.options, "compiler": "triton"},
            artifacts={"source": source, **done.texts, **others},
            op_lines={
                **done.op_lines,
                **{name: _PLACES[name](text) for name, text in others.items() if name in _PLACES},
            },
            op_ids=done.op_ids,
            compile_ns=compile_ns,
            cache_hit=is_cached,
            passes=tuple(done.passes),
            line_table=partial(_line_table, self.name, cubin),
        )


def _stages(texts: Mapping[str, str]) -> list[Snapshot]:
    """Upstream's stages of MLIR as if each were made by one pass."""
    names = ((FRONT_END, "ttir"), ("ttir to ttgir", "ttgir"))
    return [Snapshot(name, stage, texts[stage]) for name, stage in names if stage in texts]


def _name(key: Any, names: list[str]) -> str:
    """Return a parameter's name by its key: a name, a position or a path of names and positions."""
    if isinstance(key, tuple):
        key = key[0] if key else ""
    return names[key] if isinstance(key, int) and key < len(names) else str(key)


def _kind(type_name: str) -> str:
    if type_name.startswith("*"):
        return "tensor"
    if type_name in ("i1", "u1"):
        return "look"
    if type_name[:1] in "iu" and type_name[1:].isdigit():
        return "int" if type_name[0] == "i" else "uint"
    return "float" if type_name.startswith(("fp", "bf", "f")) else "other"


def _source_of(fn: Any) -> tuple[str, int, str]:
    """File, first line and text of a jit function."""
    code = getattr(getattr(fn, "fn", None), "__code__", None)
    if code is None:
        return "", 0, ""
    text = getattr(fn, "raw_src", None) or getattr(fn, "src", "")
    source = "".join(text) if isinstance(text, list) else str(text)
    return code.co_filename, int(getattr(fn, "starting_line_number", code.co_firstlineno)), source


def _line_table(name: str, cubin: bytes) -> Mapping[str, object]:
    """Return the cubin's table from lines to SASS, as data whose machine code is not read yet."""
    from tkdebug.compiler.targets.registered_backends import default_backend
    from tkdebug.linemap.line_table_data import absent

    try:
        return default_backend().image_line_table(cubin, name)
    except TkError as error:
        return absent(f"kernel {name}: {error}")
