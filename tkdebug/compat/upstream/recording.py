"""`--compiler triton`: an installed Triton stays in place, and tkdebug's hooks hear of its kernels.

Upstream's own hooks stay the script's: tkdebug replaces the functions that make its compiled
kernels and their launchers, so that it hears of kernels that torch's compiler launches, too.

The changes of upstream's passes come from the texts that it dumps before each of them. Responsible
for catching the dumps (`MLIR_ENABLE_DUMP=1`, on stderr), and for passes as sessions have them.
Texts have no ids: an op is taken for the same after a pass if the texts, as sequences of names and
source places, agree on it. Upstream does not say how long a pass takes.
"""

from __future__ import annotations

import difflib
import functools
import itertools
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from time import perf_counter_ns, time_ns
from typing import TYPE_CHECKING, Any

from tkdebug.compat.after_torch import after_import
from tkdebug.compat.replacements import Replacements, set_option
from tkdebug.errors import TkError
from tkdebug.linemap.mlir_locations import Frames, mlir_frames, ptx_frames
from tkdebug.records.events import (
    CompilerPass,
    KernelCompiled,
    KernelLaunch,
    OpFacts,
    launch_type,
    next_launch_id,
)
from tkdebug.records.hook_chain import HOOKS
from tkdebug.runtime.arguments.argument_infos import ArgumentInfos
from tkdebug.runtime.compile.specialization import signature_text
from tkdebug.runtime.device.platform import platform_in_force
from tkdebug.runtime.launch.launches_in_flight import IN_FLIGHT, NOWHERE

if TYPE_CHECKING:
    from tkdebug.records.hook_chain import NoteParts
    from tkdebug.runtime.device.platform import SpanTimer

VARIABLE = "MLIR_ENABLE_DUMP"
FRONT_END = "front-end"
_MOST_OPS = 5000
_DUMP = "// -----//"
_BEFORE = re.compile(r"// -----// IR Dump Before \S+ \(([^)]+)\) \('builtin\.module' operation\)")
_OP = re.compile(r'\s*(?:%[\w:#, %]+ = )?"?([a-z_]\w*\.[\w.]+)"?[ (<]')
_ALIAS = re.compile(r"^#(?!loc\d*\b)(\w+) = (.*)$", re.M)
_LOCATION = re.compile(r" ?loc\(#loc\d*\)\s*$")


@dataclass(frozen=True, slots=True)
class Dump:
    """The text of a module before a pass."""

    next_pass: str
    text: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The text of a module after a pass, and the name of that stage."""

    pass_name: str
    stage: str
    text: str


@dataclass
class DumpedPasses:
    """Passes and their stages, as `KernelCompiled` has them."""

    passes: list[CompilerPass] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    op_lines: dict[str, Mapping[int, Frames]] = field(default_factory=dict)
    op_ids: dict[str, Mapping[int, int]] = field(default_factory=dict)


_catching = threading.Lock()


@contextmanager
def caught_dumps(wanted: bool) -> Iterator[list[Dump]]:
    """Catch the dumps of compiles inside of a `with` block; the list is full once it is left.

    Other text that is written to stderr meanwhile is written there afterwards.

    Args:
        wanted: whether there are any; stderr is left alone otherwise.
    """
    dumps: list[Dump] = []
    if not wanted:
        yield dumps
        return
    with _catching, tempfile.TemporaryFile() as file:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield dumps
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            found, rest = parse_dumps(file.read().decode("utf-8", "replace"))
            dumps += found
            sys.stderr.write(rest)


def parse_dumps(text: str) -> tuple[list[Dump], str]:
    """Return the dumps of whole modules in a text, and the rest of the text."""
    dumps: list[Dump] = []
    rest: list[str] = []
    lines: list[str] = []
    name, is_dump = "", False
    for line in text.splitlines(keepends=True):
        if line.startswith(_DUMP):
            if name:
                dumps.append(Dump(name, "".join(lines).strip("\n")))
            head = _BEFORE.match(line)
            name, lines, is_dump = head[1] if head is not None else "", [], True
        elif is_dump:
            lines.append(line)
        else:
            rest.append(line)
    if name:
        dumps.append(Dump(name, "".join(lines).strip("\n")))
    return dumps, "".join(rest)


def snapshots_of(dumps: Sequence[Dump]) -> list[Snapshot]:
    """Return the front end's text, then the text after each pass but the last."""
    if not dumps:
        return []
    first = Snapshot(FRONT_END, "ttir", dumps[0].text)
    follow = itertools.pairwise(dumps)
    return [first, *(Snapshot(a.next_pass, f"after {a.next_pass}", b.text) for a, b in follow)]


def passes_of(snapshots: Sequence[Snapshot]) -> DumpedPasses:
    """Passes from texts, in order."""
    done = DumpedPasses()
    layouts: dict[str, str] = {}
    numbers = itertools.count(1)
    before = _Module("", "", (), {}, {})
    for snapshot in snapshots:
        plain = _with_stable_layouts(snapshot.text, layouts)
        changed = _without_places(plain) != _without_places(before.text)
        if changed:
            stage = _free(snapshot.stage, done.texts)
            after = _module(stage, plain, before, numbers)
            done.texts[stage] = plain
            done.op_lines[stage] = {n: after.frames[n] for n, _ in after.ops if n in after.frames}
            done.op_ids[stage] = dict(after.ops)
        else:
            after = before
        news = {i: op for i, op in after.facts.items() if before.facts.get(i) != op}
        ids = tuple(i for _, i in after.ops)
        done.passes.append(
            CompilerPass(
                snapshot.pass_name, before.stage, after.stage, 0, (), ids if changed else None, news
            )
        )
        before = after
    return done


@dataclass(frozen=True, slots=True)
class _Module:
    """One text: its ops as (line, id), their names, and the places of its lines."""

    stage: str
    text: str
    ops: tuple[tuple[int, int], ...]
    facts: Mapping[int, OpFacts]
    frames: Mapping[int, Frames]


def _module(stage: str, text: str, before: _Module, numbers: Iterator[int]) -> _Module:
    frames = mlir_frames(text)
    lines = text.splitlines()
    found = [(n, m[1]) for n, line in enumerate(lines, 1) if (m := _OP.match(line)) is not None]
    keys = [(name, frames.get(number, ())) for number, name in found]
    olds = [(before.facts[i].name, before.frames.get(line, ())) for line, i in before.ops]
    ids: list[int | None] = [None] * len(keys)
    if max(len(keys), len(olds)) <= _MOST_OPS:
        matcher = difflib.SequenceMatcher(None, olds, keys, autojunk=False)
        for old, new, size in matcher.get_matching_blocks():
            for offset in range(size):
                ids[new + offset] = before.ops[old + offset][1]
    numbered = [next(numbers) if i is None else i for i in ids]
    ops = tuple((number, i) for (number, _), i in zip(found, numbered, strict=True))
    facts = {
        i: _facts(name, lines[number - 1], frames.get(number, ()))
        for (number, name), i in zip(found, numbered, strict=True)
    }
    return _Module(stage, text, ops, facts, frames)


def _facts(name: str, line: str, frames: Frames) -> OpFacts:
    types = _LOCATION.sub("", line).rpartition(" : ")[2] if " : " in line else ""
    places = tuple(dict.fromkeys((frame.file, frame.line) for frame in frames))
    return OpFacts(name, {}, (types,) if types else (), None, 0, places)


def _with_stable_layouts(text: str, known: dict[str, str]) -> str:
    """The text with one name for each layout, which all texts of the kernel share.

    Args:
        text: the text of a module.
        known: name by definition, added to.
    """
    renamed: dict[str, str] = {}
    for name, definition in _ALIAS.findall(text):
        plain = re.sub(r"#(\w+)", lambda m: f"#{renamed.get(m[1], m[1])}", definition)
        if plain not in known:
            stem = name.rstrip("0123456789") or name
            count = sum(other.rstrip("0123456789") == stem for other in known.values())
            known[plain] = f"{stem}{count or ''}"
        renamed[name] = known[plain]
    return re.sub(r"#(\w+)\b", lambda m: f"#{renamed.get(m[1], m[1])}", text) if renamed else text


def _free(name: str, taken: Mapping[str, object]) -> str:
    """Return a stage name that is not taken: `name` itself, or with a number."""
    names = (f"{name} ({count})" if count > 1 else name for count in itertools.count(1))
    return next(free for free in names if free not in taken)


def _without_places(text: str) -> str:
    return "\n".join(
        _LOCATION.sub("", line) for line in text.splitlines() if not line.startswith("#loc")
    )


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
        """Turn off Inductor's static CUDA launcher, and with it cached kernels that need it.

        It bypasses Triton's compiled kernels and launchers, so launches would not be recorded.
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
        """The driver's handle of the loaded cubin, or None before it is loaded."""
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
        """The kind of each parameter, as `hook_chain.PackableKernel` has it."""
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
            # The values follow the function, two kinds of metadata and two hooks.
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
