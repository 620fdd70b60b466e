"""The switches of this process: typed, named, each with its environment variables.

Read as attributes of `KNOBS`; change for a while with `scope(quick=True)`. A knob is read from the
environment the first time it is looked at and is a plain attribute from then on, so that a launch
pays nothing for it. Upstream's variable names are understood where the meaning is the same; ours
win over them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tkdebug.errors import UsageError, instead_of
from tkdebug.events import IGNORABLE_KINDS
from tkdebug.plugins import names as plugin_names

CheckedLaunchesName = Literal["first", "all", "none"]
# More than any tile has.
ALL_ELEMENTS = 1 << 62
CHECKED_LAUNCHES: tuple[CheckedLaunchesName, ...] = ("first", "all", "none")
ModeName = Literal["auto", "interpret", "native"]
MODE_NAMES: tuple[ModeName, ...] = ("auto", "interpret", "native")
# Fault kinds that are looked for only when asked for.
CHECK_NAMES = (
    "race",
    "uninitialised-read",
    "unwritten-output",
    "nan",
    "inf",
    "padding",
    "narrowing",
    "undefined-value",
    "coverage",
    "row-overrun",
)
# Looked for without being asked: what each costs is in bench/RESULTS.md.
DEFAULT_CHECKS = ("unwritten-output", "nan", "padding", "row-overrun")
# Those that checked native launches look for.
NATIVE_CHECKS = ("nan", "inf", "uninitialised-read")
# Asks for none of these, but for what is asked for beside it.
NO_CHECKS = "none"
CHECK_CHOICES = (*CHECK_NAMES, "all", NO_CHECKS)
# Those of `CHECK_NAMES` for which fresh memory is marked.
MARKING_CHECKS = frozenset(["uninitialised-read", "unwritten-output"])
# Versions of Triton's language and the release that each of them is taken from.
TRITON_RELEASES = {"3.6": "3.6.0", "3.7": "3.7.1", "3.8": "3.8.0", "3.9": "3.9.0"}
_TRUE = ("1", "true", "on", "yes", "y")
_FALSE = ("", "0", "false", "off", "no", "n")
_SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def parse_size_bytes(text: str) -> int:
    """`"512M"`, `"1GiB"`, `"2.5g"` or a plain number of bytes, as bytes; units are powers of 1024.

    Raises:
        ValueError: `text` is no positive size.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", text.lower())
    if match is None or float(match[1]) <= 0:
        raise ValueError("a positive size such as 512M, 1.5G or a number of bytes")
    return int(float(match[1]) * _SIZE_UNITS[match[2]])


def _parse_bool(text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE + _FALSE:
        raise ValueError("1 or 0 (also true/false, on/off, yes/no)")
    return word in _TRUE


def _parse_mode(text: str) -> ModeName:
    for name in MODE_NAMES:
        if text.strip().lower() == name:
            return name
    raise ValueError("one of " + ", ".join(MODE_NAMES))


def parse_triton_version(text: str) -> str:
    """`"3.9"`, of `"3.9"` or a release such as `"3.9.0"`: the language that `triton` stands for.

    Raises:
        ValueError: a version that tkdebug does not know.
    """
    words = text.strip().split(".")
    version = ".".join(words[:2])
    if version not in TRITON_RELEASES or not all(word.isdecimal() for word in words):
        raise ValueError("one of " + ", ".join(TRITON_RELEASES))
    return version


def _parse_checked_launches(text: str) -> CheckedLaunchesName:
    for name in CHECKED_LAUNCHES:
        if text.strip().lower() == name:
            return name
    raise ValueError("one of " + ", ".join(CHECKED_LAUNCHES))


def parse_print_elements(text: str) -> int:
    """A number of elements, or `all`.

    Raises:
        ValueError: it is neither.
    """
    if text.strip().lower() == "all":
        return ALL_ELEMENTS
    if not text.strip().isdecimal():
        raise ValueError("a number of elements, or all")
    return int(text)


def _parse_watches(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";") if part.strip())


def _parse_names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _parse_checks(text: str) -> tuple[str, ...]:
    names = _parse_names(text)
    if names == ("all",):
        return CHECK_NAMES
    own = {*CHECK_NAMES, NO_CHECKS}
    if not set(names) <= own:
        known = dict.fromkeys((*CHECK_NAMES, *plugin_names("tkdebug.checks"), NO_CHECKS))
        if not set(names) <= known.keys():
            raise ValueError("names out of " + ", ".join((*known, "all")) + ", with commas")
    return names


def parse_kinds(text: str) -> tuple[str, ...]:
    """Kinds of faults with commas between them.

    Raises:
        ValueError: one of them is none, or none that can be ignored.
    """
    names = _parse_names(text)
    for name in names:
        if name not in IGNORABLE_KINDS:
            raise ValueError(
                f"kinds of faults; {name!r} is none{instead_of(name, IGNORABLE_KINDS)}"
            )
    return names


def parse_seconds(text: str) -> float:
    """A length of time.

    Raises:
        ValueError: `text` is no positive number.
    """
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError("a positive number of seconds")
    return seconds


def _parse_target(text: str) -> str | None:
    return text.strip() or None


def _parse_path(text: str) -> Path | None:
    return Path(text).expanduser() if text else None


def _parse_absolute(text: str) -> Path | None:
    # A script may go elsewhere while it runs.
    return Path(text).expanduser().absolute() if text else None


def _interpret_flag(text: str) -> ModeName:
    return "interpret" if _parse_bool(text) else "auto"


def _directory_flag(variable: str, folder: str) -> Callable[[str], Path | None]:
    # Upstream splits each of these in two: a flag, and a directory with a default.
    def parse(text: str) -> Path | None:
        if not _parse_bool(text):
            return None
        chosen = os.environ.get(variable)
        return Path(chosen).expanduser() if chosen else Path.home() / ".triton" / folder

    return parse


def _mlir_dump(text: str) -> tuple[str, ...]:
    # Upstream takes 1 or a kernel's name here; either way every pass is printed.
    return () if text.strip().lower() in _FALSE else ("all",)


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
        {"TKDEBUG_MODE": _parse_mode, "TRITON_INTERPRET": _interpret_flag},
        "auto",
        str,
        "how kernels run: auto, interpret or native",
    ),
    Knob(
        "interpret_kernels",
        {"TKDEBUG_INTERPRET": _parse_names},
        (),
        tuple,
        "patterns of kernel names that are interpreted whatever the mode",
    ),
    Knob(
        "checks",
        {"TKDEBUG_CHECKS": _parse_checks},
        (),
        tuple,
        "further faults to look for under interpret: race, uninitialised-read, "
        "unwritten-output, nan, inf, padding, narrowing, undefined-value, coverage, "
        "row-overrun, all; none for not even those that are looked for anyhow",
    ),
    Knob(
        "check_launches",
        {"TKDEBUG_CHECK_LAUNCHES": _parse_checked_launches},
        "none",
        str,
        "which launches of native kernels are checked: first (of each kind), all or none",
    ),
    Knob(
        "watches",
        {"TKDEBUG_WATCH": _parse_watches},
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
        {"TKDEBUG_INSTRUMENT": _parse_names},
        (),
        tuple,
        "plugins that instrument kernels, by name",
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
        {"TKDEBUG_ONLY": _parse_names},
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
        {"TKDEBUG_BASELINE": _parse_absolute},
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
        {"TKDEBUG_STRICT_IEEE": _parse_bool},
        False,
        bool,
        "interpret with IEEE arithmetic (no tf32, exact division) instead of the GPU's",
    ),
    Knob(
        "quick",
        {"TKDEBUG_QUICK": _parse_bool},
        False,
        bool,
        "do_bench runs once, sweeps take their first x value",
    ),
    Knob(
        "debug",
        {"TKDEBUG_DEBUG": _parse_bool, "TRITON_DEBUG": _parse_bool},
        False,
        bool,
        "kernels are compiled with device_assert and overflow checks",
    ),
    Knob(
        "debug_info",
        {"TKDEBUG_DEBUG_INFO": _parse_bool},
        False,
        bool,
        "cubins tell cuda-gdb which function is inlined where; compute-sanitizer wants it off",
    ),
    Knob(
        "dump_dir",
        {
            "TKDEBUG_DUMP": _parse_path,
            "TRITON_KERNEL_DUMP": _directory_flag("TRITON_DUMP_DIR", "dump"),
        },
        None,
        _NO_PATH,
        "directory that receives every stage of every compiled kernel",
    ),
    Knob(
        "override_dir",
        {
            "TKDEBUG_OVERRIDE": _parse_path,
            "TRITON_KERNEL_OVERRIDE": _directory_flag("TRITON_OVERRIDE_DIR", "override"),
        },
        None,
        _NO_PATH,
        "directory of edited stages that replace the compiled ones",
    ),
    Knob(
        "print_after",
        {"TKDEBUG_PRINT_AFTER": _parse_names, "MLIR_ENABLE_DUMP": _mlir_dump},
        (),
        tuple,
        "passes after which the IR is printed on stderr; all for every pass",
    ),
    Knob(
        "verify_each",
        {"TKDEBUG_VERIFY_EACH": _parse_bool},
        False,
        bool,
        "verify the IR after each pass",
    ),
    Knob(
        "always_compile",
        {"TKDEBUG_ALWAYS_COMPILE": _parse_bool, "TRITON_ALWAYS_COMPILE": _parse_bool},
        False,
        bool,
        "ignore compiled kernels found on disk",
    ),
    Knob(
        "cache_dir",
        {"TKDEBUG_CACHE_DIR": _parse_path, "TRITON_CACHE_DIR": _parse_path},
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
        {"TKDEBUG_CROSS_COMPILE": _parse_target},
        None,
        (str, type(None)),
        "architecture that interpreted kernels are compiled for besides, such as sm_90a",
    ),
    Knob(
        "advise",
        {"TKDEBUG_ADVISE": _parse_bool},
        False,
        bool,
        "with cross_compile: interpreted launches are looked at for what would make them faster",
    ),
    Knob(
        "override_arch",
        {"TKDEBUG_OVERRIDE_ARCH": _parse_target, "TRITON_OVERRIDE_ARCH": _parse_target},
        None,
        (str, type(None)),
        "architecture that kernels are compiled for where a launch does not name one",
    ),
    Knob(
        "default_fp_fusion",
        {
            "TKDEBUG_DEFAULT_FP_FUSION": _parse_bool,
            "TRITON_DEFAULT_FP_FUSION": _parse_bool,
        },
        True,
        bool,
        "native products and sums become FMA where a launch does not say enable_fp_fusion",
    ),
    Knob(
        "triton_version",
        {"TKDEBUG_TRITON": parse_triton_version},
        "3.9",
        str,
        "whose language and triton.__version__ kernels get: 3.6, 3.7, 3.8 or 3.9",
    ),
    Knob(
        "print_autotuning",
        {"TKDEBUG_PRINT_AUTOTUNING": _parse_bool, "TRITON_PRINT_AUTOTUNING": _parse_bool},
        False,
        bool,
        "print each tuner's timings and choice",
    ),
    Knob(
        "cupti",
        {"TKDEBUG_CUPTI": _parse_bool},
        True,
        bool,
        "recorded runs take the GPU's times, and what others run there, from CUPTI",
    ),
    Knob(
        "recording_process",
        {"TKDEBUG_RECORDING_PROCESS": _parse_bool},
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
    triton_version: str
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

        Raises:
            UsageError: an environment variable holds something else than expected.
        """
        return {name: getattr(self, name) for name in _BY_NAME}

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
