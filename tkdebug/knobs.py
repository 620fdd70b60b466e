"""The switches of this process: typed, named, each with its environment variables.

Read as attributes of `KNOBS`; change for a while with `scope(quick=True)`. A knob is read from the
environment the first time it is looked at and is a plain attribute from then on, so that a launch
pays nothing for it. Upstream's variable names are understood where the meaning is the same; ours
win over them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tkdebug.errors import UsageError
from tkdebug.knob_values import (
    CheckedLaunchesName,
    ModeName,
    directory_flag,
    interpret_flag,
    parse_absolute,
    parse_bool,
    parse_checked_launches,
    parse_checks,
    parse_compiler,
    parse_dot_precision,
    parse_kinds,
    parse_mlir_dump,
    parse_mode,
    parse_names,
    parse_path,
    parse_print_elements,
    parse_seconds,
    parse_size_bytes,
    parse_target,
    parse_triton_version,
    parse_watches,
)

Parser = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Knob:
    """One switch.

    Attributes:
        sources: environment variables in order of precedence, each with its parser.
        default: the value when no variable is set.
        type: what a value assigned in code must be an instance of.
        doc: one line for `tkdebug doctor` and the README.
    """

    name: str
    sources: Mapping[str, Parser]
    default: object
    type: type | tuple[type, ...]
    doc: str

    def read(self) -> object:
        """The value by the environment."""
        for variable, parse in self.sources.items():
            text = os.environ.get(variable)
            if text is None:
                continue
            try:
                return parse(text)
            except ValueError as error:
                raise UsageError(
                    f"environment variable {variable}: got {text!r}, expected {error}"
                ) from None
        return self.default

    def check(self, value: object) -> object:
        """`value` if it fits; a string is parsed as the environment's would be.

        Raises:
            UsageError: it does not fit.
        """
        if isinstance(value, str):
            parse = next(iter(self.sources.values()))
            try:
                return parse(value)
            except ValueError as error:
                raise UsageError(f"knob {self.name}: got {value!r}, expected {error}") from None
        wrong_bool = isinstance(value, bool) and self.type is int
        if wrong_bool or not isinstance(value, self.type):
            raise UsageError(
                f"knob {self.name}: got {value!r}, expected a value like {self.default!r}"
            )
        return value


_NO_PATH = (Path, type(None))
KNOB_TABLE: tuple[Knob, ...] = (
    Knob(
        "mode",
        {"TKDEBUG_MODE": parse_mode, "TRITON_INTERPRET": interpret_flag},
        "auto",
        str,
        "how kernels run: auto, interpret or native",
    ),
    Knob(
        "interpret_kernels",
        {"TKDEBUG_INTERPRET": parse_names},
        (),
        tuple,
        "patterns of kernel names that are interpreted whatever the mode",
    ),
    Knob(
        "checks",
        {"TKDEBUG_CHECKS": parse_checks},
        (),
        tuple,
        "further checks of interpreted kernels, by the names of --check, or all; none switches off "
        "the default ones, too",
    ),
    Knob(
        "check_launches",
        {"TKDEBUG_CHECK_LAUNCHES": parse_checked_launches},
        "none",
        str,
        "which launches of native kernels are checked: first (of each kind), all or none",
    ),
    Knob(
        "watches",
        {"TKDEBUG_WATCH": parse_watches},
        (),
        tuple,
        "values of kernels to look at, FILE:LINE:NAME[:tile][@PROGRAMS][ if CONDITION], between ;",
    ),
    Knob(
        "watch_buffer_bytes",
        {"TKDEBUG_WATCH_BUFFER": parse_size_bytes},
        4 << 20,
        int,
        "memory for what is kept of watched values in one launch",
    ),
    Knob(
        "instrumentations",
        {"TKDEBUG_INSTRUMENT": parse_names},
        (),
        tuple,
        "plugins that instrument kernels, by name",
    ),
    Knob(
        "timelines",
        {"TKDEBUG_TIMELINE": parse_watches},
        (),
        tuple,
        "kernels of which warps' timelines are recorded, KERNEL[@PROGRAMS], between ;",
    ),
    Knob(
        "print_elements",
        {"TKDEBUG_PRINT_ELEMENTS": parse_print_elements},
        256,
        int,
        "elements of a tile that `device_print` prints one by one, or all; larger tiles are "
        "summarised in one line",
    ),
    Knob(
        "only_kernels",
        {"TKDEBUG_ONLY": parse_names},
        (),
        tuple,
        "patterns of the names of the kernels that are checked; none for all kernels",
    ),
    Knob(
        "ignored_kinds",
        {"TKDEBUG_IGNORE": parse_kinds},
        (),
        tuple,
        "kinds of faults that are not reported",
    ),
    Knob(
        "baseline",
        {"TKDEBUG_BASELINE": parse_absolute},
        None,
        _NO_PATH,
        "file of known faults, which do not fail a run",
    ),
    Knob(
        "memory_budget_bytes",
        {"TKDEBUG_MEMORY_BUDGET": parse_size_bytes},
        1 << 30,
        int,
        "memory the interpreter may use for one batch of programs",
    ),
    Knob(
        "strict_ieee",
        {"TKDEBUG_STRICT_IEEE": parse_bool},
        False,
        bool,
        "interpret with IEEE arithmetic (no tf32, exact division) instead of the GPU's",
    ),
    Knob(
        "quick",
        {"TKDEBUG_QUICK": parse_bool},
        False,
        bool,
        "do_bench runs once, sweeps take their first x value",
    ),
    Knob(
        "debug",
        {"TKDEBUG_DEBUG": parse_bool, "TRITON_DEBUG": parse_bool},
        False,
        bool,
        "kernels are compiled with device_assert and overflow checks",
    ),
    Knob(
        "debug_info",
        {"TKDEBUG_DEBUG_INFO": parse_bool},
        False,
        bool,
        "cubins tell cuda-gdb which function is inlined where; compute-sanitizer wants it off",
    ),
    Knob(
        "dump_dir",
        {
            "TKDEBUG_DUMP": parse_path,
            "TRITON_KERNEL_DUMP": directory_flag("TRITON_DUMP_DIR", "dump"),
        },
        None,
        _NO_PATH,
        "directory that receives every stage of every compiled kernel",
    ),
    Knob(
        "override_dir",
        {
            "TKDEBUG_OVERRIDE": parse_path,
            "TRITON_KERNEL_OVERRIDE": directory_flag("TRITON_OVERRIDE_DIR", "override"),
        },
        None,
        _NO_PATH,
        "directory of edited stages that replace the compiled ones",
    ),
    Knob(
        "print_after",
        {"TKDEBUG_PRINT_AFTER": parse_names, "MLIR_ENABLE_DUMP": parse_mlir_dump},
        (),
        tuple,
        "passes after which the IR is printed on stderr; all for every pass",
    ),
    Knob(
        "verify_each",
        {"TKDEBUG_VERIFY_EACH": parse_bool},
        False,
        bool,
        "verify the IR after each pass",
    ),
    Knob(
        "always_compile",
        {"TKDEBUG_ALWAYS_COMPILE": parse_bool, "TRITON_ALWAYS_COMPILE": parse_bool},
        False,
        bool,
        "ignore compiled kernels found on disk",
    ),
    Knob(
        "cache_dir",
        {"TKDEBUG_CACHE_DIR": parse_path, "TRITON_CACHE_DIR": parse_path},
        None,
        _NO_PATH,
        "directory of compiled kernels; None for ~/.cache/tkdebug",
    ),
    Knob(
        "cache_size_bytes",
        {"TKDEBUG_CACHE_SIZE": parse_size_bytes},
        1 << 30,
        int,
        "how much disk compiled kernels may take",
    ),
    Knob(
        "codegen_timeout_s",
        {"TKDEBUG_CODEGEN_TIMEOUT": parse_seconds},
        300.0,
        (float, int),
        "seconds that LLVM and ptxas may take for one kernel",
    ),
    Knob(
        "cross_compile",
        {"TKDEBUG_CROSS_COMPILE": parse_target},
        None,
        (str, type(None)),
        "architecture that interpreted kernels are also compiled for, such as sm_90a",
    ),
    Knob(
        "advise",
        {"TKDEBUG_ADVISE": parse_bool},
        False,
        bool,
        "with cross_compile: interpreted launches are looked at for what would make them faster",
    ),
    Knob(
        "override_arch",
        {"TKDEBUG_OVERRIDE_ARCH": parse_target, "TRITON_OVERRIDE_ARCH": parse_target},
        None,
        (str, type(None)),
        "architecture that kernels are compiled for where a launch does not name one",
    ),
    Knob(
        "default_fp_fusion",
        {
            "TKDEBUG_DEFAULT_FP_FUSION": parse_bool,
            "TRITON_DEFAULT_FP_FUSION": parse_bool,
        },
        True,
        bool,
        "native products and sums become FMA where a launch does not say enable_fp_fusion",
    ),
    Knob(
        "fp32_default",
        {
            "TKDEBUG_FP32_DEFAULT": parse_dot_precision,
            "TRITON_F32_DEFAULT": parse_dot_precision,
        },
        None,
        (str, type(None)),
        "input_precision of fp32 dots that name none: tf32, tf32x3, ieee, bf16x3, bf16x6",
    ),
    Knob(
        "triton_version",
        {"TKDEBUG_TRITON": parse_triton_version},
        "3.9",
        str,
        "whose language and triton.__version__ kernels get: 3.6, 3.7, 3.8 or 3.9",
    ),
    Knob(
        "compiler",
        {"TKDEBUG_COMPILER": parse_compiler},
        "tkdebug",
        str,
        "what compiles kernels: tkdebug, or triton for the Triton that is installed",
    ),
    Knob(
        "print_autotuning",
        {"TKDEBUG_PRINT_AUTOTUNING": parse_bool, "TRITON_PRINT_AUTOTUNING": parse_bool},
        False,
        bool,
        "print each tuner's timings and choice",
    ),
    Knob(
        "cupti",
        {"TKDEBUG_CUPTI": parse_bool},
        True,
        bool,
        "recorded runs take the GPU's times, and what others run there, from CUPTI",
    ),
    Knob(
        "recording_process",
        {"TKDEBUG_RECORDING_PROCESS": parse_bool},
        True,
        bool,
        "long recorded runs, and those that use a GPU, are stored by a process of their own",
    ),
)
_BY_NAME = {knob.name: knob for knob in KNOB_TABLE}


class Knobs:
    """The values in force. Assignment is checked; `scope` changes and restores."""

    mode: ModeName
    interpret_kernels: tuple[str, ...]
    checks: tuple[str, ...]
    check_launches: CheckedLaunchesName
    watches: tuple[str, ...]
    timelines: tuple[str, ...]
    watch_buffer_bytes: int
    instrumentations: tuple[str, ...]
    print_elements: int
    only_kernels: tuple[str, ...]
    ignored_kinds: tuple[str, ...]
    baseline: Path | None
    memory_budget_bytes: int
    strict_ieee: bool
    quick: bool
    debug: bool
    debug_info: bool
    dump_dir: Path | None
    override_dir: Path | None
    print_after: tuple[str, ...]
    verify_each: bool
    always_compile: bool
    cache_dir: Path | None
    cache_size_bytes: int
    codegen_timeout_s: float
    cross_compile: str | None
    advise: bool
    override_arch: str | None
    default_fp_fusion: bool
    fp32_default: str | None
    triton_version: str
    compiler: str
    print_autotuning: bool
    cupti: bool
    recording_process: bool

    def __getattr__(self, name: str) -> object:
        # Reached only until the first read has put the value into the instance.
        knob = _BY_NAME.get(name)
        if knob is None:
            raise AttributeError(f"no knob {name!r}; there are {', '.join(_BY_NAME)}")
        value = self.__dict__[name] = knob.read()
        return value

    def __setattr__(self, name: str, value: object) -> None:
        self.__dict__[name] = _knob(name).check(value)

    def read_all(self) -> dict[str, object]:
        """Every knob's value by name, so that a bad variable shows at once.

        What has not been looked at stays so: scripts set variables of upstream's themselves.

        Raises:
            UsageError: an environment variable holds something else than expected.
        """
        known = self.__dict__
        return {n: known[n] if n in known else knob.read() for n, knob in _BY_NAME.items()}

    def refresh(self) -> None:
        """Forget all values; the environment is read again when they are next looked at."""
        self.__dict__.clear()

    @contextmanager
    def scope(self, **changes: object) -> Iterator[Knobs]:
        """Change knobs for the length of a `with` block, in every thread.

        Raises:
            UsageError: no such knob, or a value that does not fit.
        """
        checked = {name: _knob(name).check(value) for name, value in changes.items()}
        before = {name: self.__dict__[name] for name in checked if name in self.__dict__}
        self.__dict__.update(checked)
        try:
            yield self
        finally:
            for name in checked:
                self.__dict__.pop(name, None)
            self.__dict__.update(before)


def _knob(name: str) -> Knob:
    if name not in _BY_NAME:
        raise UsageError(f"no knob {name!r}; there are {', '.join(_BY_NAME)}")
    return _BY_NAME[name]


KNOBS = Knobs()
scope = KNOBS.scope
