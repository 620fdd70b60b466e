"""The switches of this process: typed, named, each with its environment variables.

Read as attributes of `KNOBS`; change for a while with `scope(quick=True)`. A knob is read from the
environment the first time it is looked at. Upstream's variable names are understood if the meaning
is the same; tkdebug's win over them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar, cast, overload

from tkdebug.errors import UsageError
from tkdebug.knobs.values import (
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
    parse_opt_level,
    parse_path,
    parse_print_elements,
    parse_python,
    parse_seconds,
    parse_size_bytes,
    parse_target,
    parse_triton_version,
    parse_watches,
)

T = TypeVar("T")
Parser = Callable[[str], object]
_NO_PATH = (Path, type(None))


class Knob(Generic[T]):
    """One switch: an attribute of a class of knobs, read from the environment at its first look.

    From then on the value is a plain attribute of the instance, so that a launch pays nothing for
    it.

    Args:
        sources: environment variables in order of precedence, each with its parser.
        default: the value when no variable is set.
        type: the type of values assigned in code.
        doc: one line for `tkdebug doctor` and the documentation.
    """

    def __init__(
        self,
        sources: Mapping[str, Parser],
        default: T,
        type: type | tuple[type, ...],
        doc: str,
    ) -> None:
        self.name = ""
        self.sources = sources
        self.default = default
        self.type = type
        self.doc = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, knobs: None, owner: type) -> Knob[T]: ...
    @overload
    def __get__(self, knobs: object, owner: type) -> T: ...
    def __get__(self, knobs: object | None, owner: type) -> Knob[T] | T:
        if knobs is None:
            return self
        value = self.read()
        vars(knobs)[self.name] = value
        return value

    if TYPE_CHECKING:
        # `KnobSet.__setattr__` takes values; a method here would be called at every look.
        def __set__(self, knobs: object, value: T) -> None: ...

    def read(self) -> T:
        """Return the value by the environment, else the default; a bad text is a UsageError."""
        for variable, parse in self.sources.items():
            text = os.environ.get(variable)
            if text is None:
                continue
            try:
                return cast("T", parse(text))
            except ValueError as error:
                raise UsageError(
                    f"environment variable {variable}: got {text!r}, expected {error}"
                ) from None
        return self.default

    def check(self, value: object) -> object:
        """`value` if it fits; a string is parsed as the environment's would be.

        Raises:
            UsageError: the value does not fit.
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


class KnobSet:
    """The values in force. Assignment is checked; `scope` changes and restores."""

    table: ClassVar[Mapping[str, Knob[object]]] = {}

    def __init_subclass__(cls) -> None:
        cls.table = {name: knob for name, knob in vars(cls).items() if isinstance(knob, Knob)}

    if not TYPE_CHECKING:  # to which a knob that is not declared is a mistake

        def __getattr__(self, name: str) -> object:
            raise AttributeError(self._unknown(name))

    def __setattr__(self, name: str, value: object) -> None:
        self.__dict__[name] = self._knob(name).check(value)

    def read_all(self) -> dict[str, object]:
        """Every knob's value by name, so that a bad variable shows at once.

        Knobs that were not looked at stay so: scripts set upstream's variables themselves.

        Raises:
            UsageError: an environment variable holds something else than expected.
        """
        known = self.__dict__
        return {n: known[n] if n in known else knob.read() for n, knob in self.table.items()}

    def refresh(self) -> None:
        """Forget all values; the environment is read again when they are next looked at."""
        self.__dict__.clear()

    @contextmanager
    def scope(self, **changes: object) -> Iterator[KnobSet]:
        """Change knobs for the length of a `with` block, in every thread.

        Raises:
            UsageError: there is no such knob, or a value does not fit.
        """
        checked = {name: self._knob(name).check(value) for name, value in changes.items()}
        before = {name: self.__dict__[name] for name in checked if name in self.__dict__}
        self.__dict__.update(checked)
        try:
            yield self
        finally:
            for name in checked:
                self.__dict__.pop(name, None)
            self.__dict__.update(before)

    def _knob(self, name: str) -> Knob[object]:
        if name not in self.table:
            raise UsageError(self._unknown(name))
        return self.table[name]

    def _unknown(self, name: str) -> str:
        return f"no knob {name!r}; there are {', '.join(self.table)}"


class Knobs(KnobSet):
    """All knobs, in the order of the documentation."""

    mode = Knob[ModeName](
        {"TKDEBUG_MODE": parse_mode, "TRITON_INTERPRET": interpret_flag},
        "auto",
        str,
        "how kernels run: auto, interpret or native",
    )
    interpret_kernels = Knob[tuple[str, ...]](
        {"TKDEBUG_INTERPRET": parse_names},
        (),
        tuple,
        "patterns of kernel names that are interpreted whatever the mode",
    )
    checks = Knob[tuple[str, ...]](
        {"TKDEBUG_CHECKS": parse_checks},
        (),
        tuple,
        "further checks of interpreted kernels, by the names of --check, or all; none switches off "
        "the default ones, too",
    )
    check_launches = Knob[CheckedLaunchesName](
        {"TKDEBUG_CHECK_LAUNCHES": parse_checked_launches},
        "none",
        str,
        "which launches of native kernels are checked: first (of each kind), all or none",
    )
    watches = Knob[tuple[str, ...]](
        {"TKDEBUG_WATCH": parse_watches},
        (),
        tuple,
        "values of kernels to look at, FILE:LINE:NAME[:tile][@PROGRAMS][ if CONDITION], between ;",
    )
    watch_buffer_bytes = Knob[int](
        {"TKDEBUG_WATCH_BUFFER": parse_size_bytes},
        4 << 20,
        int,
        "memory for what is kept of watched values in one launch",
    )
    instrumentations = Knob[tuple[str, ...]](
        {"TKDEBUG_INSTRUMENT": parse_names},
        (),
        tuple,
        "plugins that instrument kernels, by name",
    )
    timelines = Knob[tuple[str, ...]](
        {"TKDEBUG_TIMELINE": parse_watches},
        (),
        tuple,
        "kernels of which warps' timelines are recorded, KERNEL[@PROGRAMS], between ;",
    )
    print_elements = Knob[int](
        {"TKDEBUG_PRINT_ELEMENTS": parse_print_elements},
        256,
        int,
        "elements of a tile that `device_print` prints one by one, or all; larger tiles are "
        "summarised in one line",
    )
    only_kernels = Knob[tuple[str, ...]](
        {"TKDEBUG_ONLY": parse_names},
        (),
        tuple,
        "patterns of the names of the kernels that are checked; none for all kernels",
    )
    ignored_kinds = Knob[tuple[str, ...]](
        {"TKDEBUG_IGNORE": parse_kinds},
        (),
        tuple,
        "kinds of faults that are not reported",
    )
    baseline = Knob["Path | None"](
        {"TKDEBUG_BASELINE": parse_absolute},
        None,
        _NO_PATH,
        "file of known faults, which do not fail a run",
    )
    cause = Knob[bool](
        {"TKDEBUG_CAUSE": parse_bool},
        False,
        bool,
        "keep what interpreted launches are given, to run them again if a comparison fails",
    )
    cause_seconds = Knob[float](
        {"TKDEBUG_CAUSE_SECONDS": parse_seconds},
        10.0,
        (float, int),
        "seconds that the cause of a failed comparison is looked for",
    )
    reference = Knob[str](
        {"TKDEBUG_REFERENCE": str},
        "",
        str,
        "module:function that says what a kernel's output should be, where a comparison fails",
    )
    memory_budget_bytes = Knob[int](
        {"TKDEBUG_MEMORY_BUDGET": parse_size_bytes},
        1 << 30,
        int,
        "memory the interpreter may use for one batch of programs",
    )
    strict_ieee = Knob[bool](
        {"TKDEBUG_STRICT_IEEE": parse_bool},
        False,
        bool,
        "interpret with IEEE arithmetic (no tf32, exact division) instead of the GPU's",
    )
    quick = Knob[bool](
        {"TKDEBUG_QUICK": parse_bool},
        False,
        bool,
        "do_bench runs once, sweeps take their first x value",
    )
    debug = Knob[bool](
        {"TKDEBUG_DEBUG": parse_bool, "TRITON_DEBUG": parse_bool},
        False,
        bool,
        "kernels are compiled with device_assert and overflow checks",
    )
    debug_info = Knob[bool](
        {"TKDEBUG_DEBUG_INFO": parse_bool},
        False,
        bool,
        "cubins tell cuda-gdb which function is inlined where; compute-sanitizer wants it off",
    )
    dump_dir = Knob["Path | None"](
        {
            "TKDEBUG_DUMP": parse_path,
            "TRITON_KERNEL_DUMP": directory_flag("TRITON_DUMP_DIR", "dump"),
        },
        None,
        _NO_PATH,
        "directory that receives every stage of every compiled kernel",
    )
    override_dir = Knob["Path | None"](
        {
            "TKDEBUG_OVERRIDE": parse_path,
            "TRITON_KERNEL_OVERRIDE": directory_flag("TRITON_OVERRIDE_DIR", "override"),
        },
        None,
        _NO_PATH,
        "directory of edited stages that replace the compiled ones",
    )
    print_after = Knob[tuple[str, ...]](
        {"TKDEBUG_PRINT_AFTER": parse_names, "MLIR_ENABLE_DUMP": parse_mlir_dump},
        (),
        tuple,
        "passes after which the IR is printed on stderr; all for every pass",
    )
    verify_each = Knob[bool](
        {"TKDEBUG_VERIFY_EACH": parse_bool},
        False,
        bool,
        "verify the IR after each pass",
    )
    always_compile = Knob[bool](
        {"TKDEBUG_ALWAYS_COMPILE": parse_bool, "TRITON_ALWAYS_COMPILE": parse_bool},
        False,
        bool,
        "ignore compiled kernels found on disk",
    )
    cache_dir = Knob["Path | None"](
        {"TKDEBUG_CACHE_DIR": parse_path, "TRITON_CACHE_DIR": parse_path},
        None,
        _NO_PATH,
        "directory of kept kernels and disassembly; None for ~/.cache/tkdebug",
    )
    cache_size_bytes = Knob[int](
        {"TKDEBUG_CACHE_SIZE": parse_size_bytes},
        1 << 30,
        int,
        "how much disk the cache may take",
    )
    codegen_timeout_s = Knob[float](
        {"TKDEBUG_CODEGEN_TIMEOUT": parse_seconds},
        300.0,
        (float, int),
        "seconds that LLVM and ptxas may take for one kernel",
    )
    cross_compile = Knob["str | None"](
        {"TKDEBUG_CROSS_COMPILE": parse_target},
        None,
        (str, type(None)),
        "architecture that interpreted kernels are also compiled for, such as sm_90a",
    )
    advise = Knob[bool](
        {"TKDEBUG_ADVISE": parse_bool},
        False,
        bool,
        "with cross_compile: interpreted launches are looked at for what would make them faster",
    )
    advise_gpu = Knob["str | None"](
        {"TKDEBUG_ADVISE_GPU": parse_target},
        None,
        (str, type(None)),
        "with advise: the name of the GPU that predictions are made for, such as NVIDIA H200",
    )
    override_arch = Knob["str | None"](
        {"TKDEBUG_OVERRIDE_ARCH": parse_target, "TRITON_OVERRIDE_ARCH": parse_target},
        None,
        (str, type(None)),
        "architecture that kernels are compiled for where a launch does not name one",
    )
    default_fp_fusion = Knob[bool](
        {
            "TKDEBUG_DEFAULT_FP_FUSION": parse_bool,
            "TRITON_DEFAULT_FP_FUSION": parse_bool,
        },
        True,
        bool,
        "native products and sums become FMA where a launch does not say enable_fp_fusion",
    )
    llvm_opt_level = Knob[int](
        {"TKDEBUG_LLVM_OPT": parse_opt_level},
        3,
        int,
        "LLVM's optimisation level for native kernels, 0 to 3",
    )
    ptxas_opt_level = Knob[int](
        {"TKDEBUG_PTXAS_OPT": parse_opt_level},
        3,
        int,
        "ptxas's optimisation level for native kernels, 0 to 3",
    )
    fp32_default = Knob["str | None"](
        {
            "TKDEBUG_FP32_DEFAULT": parse_dot_precision,
            "TRITON_F32_DEFAULT": parse_dot_precision,
        },
        None,
        (str, type(None)),
        "input_precision of fp32 dots that name none: tf32, tf32x3, ieee, bf16x3, bf16x6",
    )
    triton_version = Knob[str](
        {"TKDEBUG_TRITON": parse_triton_version},
        "3.9",
        str,
        "whose language and triton.__version__ kernels get: 3.6, 3.7, 3.8 or 3.9",
    )
    compiler = Knob[str](
        {"TKDEBUG_COMPILER": parse_compiler},
        "tkdebug",
        str,
        "what compiles kernels: tkdebug, or triton for the Triton that is installed",
    )
    ask_triton = Knob["str | None"](
        {"TKDEBUG_ASK_TRITON": parse_python},
        None,
        (str, type(None)),
        "a Python with Triton, which is asked whether it compiles each signature, too",
    )
    print_autotuning = Knob[bool](
        {"TKDEBUG_PRINT_AUTOTUNING": parse_bool, "TRITON_PRINT_AUTOTUNING": parse_bool},
        False,
        bool,
        "print each tuner's timings and choice",
    )
    cupti = Knob[bool](
        {"TKDEBUG_CUPTI": parse_bool},
        True,
        bool,
        "recorded runs take the GPU's times, and what others run there, from CUPTI",
    )
    recording_process = Knob[bool](
        {"TKDEBUG_RECORDING_PROCESS": parse_bool},
        True,
        bool,
        "long recorded runs, and those that use a GPU, are stored by a process of their own",
    )


KNOB_TABLE = tuple(Knobs.table.values())
KNOBS = Knobs()
scope = KNOBS.scope
