"""The options of a launch: keywords that are no parameters of the kernel."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache, lru_cache
from typing import Any

from tkdebug.knobs import KNOBS
from tkdebug.runtime.errors import OptionValueError, UnknownOptionError
from tkdebug.terminal.text import tell

# Keywords that upstream once took; it refuses them by name.
_GONE = {
    "device": "the current device is used; call torch.cuda.set_device first",
    "device_type": "the current target is used",
    "stream": "the current stream is used; launch inside `with torch.cuda.stream(s):`",
}
# Triton's options for AMD's GPUs alone (`HIPOptions` of 3.6 to 3.9).
_OF_AMD = frozenset(
    "waves_per_eu matrix_instr_nonkdim kpack allow_flush_denorm schedule_hint llvm_fn_attrs "
    "wgp_cu_mode".split()
)
# Options for NVIDIA's that change no result, and that tkdebug's compiler ignores.
_WITHOUT_EFFECT = frozenset(
    "sched4reg clc min_shared_mem fpsan_homomorphic_casts backend_name".split()
)


# Without slots: from 2.14.1 on torch reads the names of options from `__dict__`.
@dataclass(frozen=True)
class LaunchOptions:
    """Options by which a kernel is compiled and launched.

    Attributes:
        num_warps: warps per program; a power of 2.
        num_stages: stages of the software pipeline.
        num_ctas: thread blocks per cluster.
        maxnreg: registers per thread at most.
        launch_pdl: programmatic dependent launch.
        debug: device_assert and overflow checks are compiled in.
        enable_fp_fusion: products and sums become FMA.
        enable_reflect_ftz: fp32 exp2, sqrt and rsqrt flush subnormal numbers to zero.
        extern_libs: bitcode libraries as (name, path) pairs.
        arch: the architecture to compile for, as `sm90`; None for the current device.
    """

    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None
    launch_pdl: bool = False
    launch_cooperative_grid: bool = False
    debug: bool = False
    sanitize_overflow: bool = True
    enable_fp_fusion: bool = True
    enable_reflect_ftz: bool = True
    extern_libs: tuple[tuple[str, str], ...] = ()
    ir_override: str | None = None
    arch: str | None = None
    warp_size: int = 32
    ptx_version: int | None = None
    ptx_options: str | None = None
    default_dot_input_precision: str = "tf32"
    allowed_dot_input_precisions: tuple[str, ...] = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")
    max_num_imprecise_acc_default: int | None = None
    supported_fp8_dtypes: tuple[str, ...] = ("fp8e5", "fp8e4b15", "fp8e4nv")
    deprecated_fp8_dot_operand_dtypes: tuple[str, ...] = ("fp8e4b15",)
    instrumentation_mode: str = ""

    def __post_init__(self) -> None:
        for name in ("num_warps", "num_ctas"):
            _check_power_of_2(name, getattr(self, name))
        if not isinstance(self.num_stages, int) or self.num_stages < 0:
            raise OptionValueError(f"num_stages: got {self.num_stages!r}, expected an int, 0 or up")

    def as_dict(self) -> dict[str, Any]:
        """All options by name."""
        return asdict(self)


OPTION_NAMES = frozenset(field.name for field in fields(LaunchOptions))


def _check_power_of_2(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0 or value & (value - 1):
        raise OptionValueError(f"{name} must be a power of 2, got {value!r}")


def without_amd_options(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options less those for AMD's GPUs alone, each of which is reported once.

    Triton's interpreter ignores them, and so does `triton.compile`; launches on NVIDIA's GPUs
    refuse them.

    Args:
        options: the options by name.
    """
    foreign = options.keys() & _OF_AMD
    if not foreign:
        return options
    for name in sorted(foreign):
        _tell_ignored(
            name, "an option for AMD's GPUs, ignored here; a launch on NVIDIA's refuses it"
        )
    return {name: value for name, value in options.items() if name not in foreign}


@cache
def _tell_ignored(name: str, why: str) -> None:
    """Report once in a process that a launch option is ignored."""
    tell(f"launch option {name}: {why}")


def parse_options(
    kernel: str, keywords: Mapping[str, Any], parameters: Collection[str], debug: bool
) -> LaunchOptions:
    """Return the options in `keywords`.

    Args:
        kernel: the kernel's name, for messages.
        keywords: the launch's keywords beyond the kernel's parameters.
        parameters: names of the kernel's parameters, for messages.
        debug: the value of `debug` where the launch does not say.

    Raises:
        UnknownOptionError: a keyword that is no option.
        OptionValueError: a value an option cannot have.
    """
    if not keywords:
        return _unasked(
            debug, KNOBS.override_arch, bool(KNOBS.default_fp_fusion), KNOBS.fp32_default
        )
    for name in sorted(keywords.keys() & _WITHOUT_EFFECT):
        _tell_ignored(name, "tkdebug's compiler ignores it; it changes no result")
    keywords = {n: value for n, value in keywords.items() if n not in _WITHOUT_EFFECT}
    values = {
        "debug": debug,
        "arch": KNOBS.override_arch,
        "enable_fp_fusion": KNOBS.default_fp_fusion,
        "default_dot_input_precision": KNOBS.fp32_default or "tf32",
        **{name: v for name, v in keywords.items() if v is not None},
    }
    for name in keywords:
        if name in OPTION_NAMES:
            continue
        if name in _GONE:
            raise UnknownOptionError(f"kernel {kernel}: keyword `{name}` is gone; {_GONE[name]}")
        if name in _OF_AMD:
            raise UnknownOptionError(
                f"kernel {kernel}: keyword argument {name} was specified but unrecognised: it is "
                "an option for AMD's GPUs, which Triton refuses on NVIDIA's; leave it out there"
            )
        known = ", ".join([*parameters, "num_warps", "num_stages", "num_ctas", "maxnreg", "…"])
        import difflib  # only where something is wrong

        near = difflib.get_close_matches(name, [*parameters, *OPTION_NAMES], 1)
        raise UnknownOptionError(
            f"kernel {kernel}: keyword argument {name} was specified but unrecognised; "
            + (f"did you mean {near[0]}?" if near else f"expected one of {known}")
        )
    libraries = values.get("extern_libs") or ()
    items = libraries.items() if isinstance(libraries, Mapping) else libraries
    values["extern_libs"] = tuple((str(name), str(path)) for name, path in items)
    values["debug"] = bool(values["debug"] or debug)
    return LaunchOptions(**values)


@lru_cache(maxsize=16)
def _unasked(
    debug: bool, arch: str | None, enable_fp_fusion: bool, precision: str | None
) -> LaunchOptions:
    """The options of a launch that names none."""
    return LaunchOptions(
        debug=debug,
        arch=arch,
        enable_fp_fusion=enable_fp_fusion,
        default_dot_input_precision=precision or "tf32",
    )
