"""Upstream's tests that do not apply to tkdebug, and why; and those that are known to fail.

Tables of (file, test name with its parameters, as a pattern that matches from the start; reason).
"""

from __future__ import annotations

import re
from pathlib import Path

_IR_TEXT = "compares the text of libtriton's IR"
_IR_NAMES = "looks for a name of libtriton's IR in the stages of a kernel"
_WORDING = "compares upstream's wording of an error or of its position, word by word"
_FP8 = "wants an fp8 type refused on this GPU; here every fp8 type works"
_ALIGNMENT = "counts compiles by alignment, which only native kernels are compiled for"
_OVERRIDE = "replaces the IR of upstream's code generator"
_LOADING = "hears a binary being loaded; an interpreted kernel has none"
_ASYNC = "compiles in other threads (AsyncCompileMode): only upstream's compiles take that long"
_KEPT = "reads used_global_vals, upstream's own record of a compile"
_RESOURCES = "exceeds a limit of the GPU; interpretation has none"
_PRELOAD = "loads a binary that was compiled before"

Table = tuple[tuple[str, str, str], ...]

_LIBTRITON = "calls libtriton, upstream's compiler"
_INTERNALS = "tests upstream's own build, driver or test runner"
_BLACKWELL = "wants the instructions of sm_100, or a pipeline of upstream's IR, on a GPU"

# Files of unit/language, unit/runtime and unit/ that are not run at all.
FILES = {
    "language/test_clc.py": _BLACKWELL,
    "language/test_compile_only.py": _LIBTRITON,
    "language/test_frontend.py": f"{_IR_TEXT}, and defines builtins of upstream's code generator",
    "language/test_module.py": "an import, which test_decorator.py makes as well",
    "language/test_mxfp.py": "compares the bits of triton.tools.mxfp, a helper of upstream's tests",
    "language/test_pipeliner.py": _BLACKWELL,
    "language/test_reproducer.py": "reads the reproducer that MLIR writes of a crash",
    "language/test_warp_specialization.py": _BLACKWELL,
    "runtime/test_bindings.py": _LIBTRITON,
    "runtime/test_blaslt.py": "calls cuBLASLt through libtriton's bindings",
    "runtime/test_build.py": _INTERNALS,
    "runtime/test_compilation_listener.py": "hears of the stages of upstream's compiler",
    "runtime/test_driver.py": _INTERNALS,
    "runtime/test_interpreter.py": "calls the C++ half of upstream's interpreter",
    "runtime/test_no_torch_dispatch.py": "launches without torch, on a GPU",
    "runtime/test_specialize.py": _LIBTRITON,
    "runtime/test_subproc.py": _INTERNALS,
    "test_debug.py": "starts processes that reread upstream's knobs (triton.knobs.refresh_knobs)",
    "test_debug_dump.py": _IR_TEXT,
    "test_debug_kernels.py": "has no tests",
    "test_debuginfo.py": "reads the debug variables of LLVM IR",
    "test_filecheck.py": _IR_TEXT,
    "test_knobs.py": "compares every default and folder of upstream's own knobs",
    "test_link.py": _LIBTRITON,
    "test_perf_warning.py": "compares the remarks of upstream's passes",
    "test_stages_inspection.py": _LIBTRITON,
    "test_utils.py": "tests private functions (triton._utils)",
}

NOT_APPLICABLE: Table = (
    ("test_annotations.py", "test_float_annotation", _IR_TEXT),
    (
        "test_annotations.py",
        "test_int_annotation",
        f"{_IR_TEXT}; and its kernel stores past its one-element tensor, which is a fault",
    ),
    ("test_autotuner.py", "test_override_", _OVERRIDE),
    ("test_cache.py", "test_jit_noinline", _IR_TEXT),
    ("test_cache.py", "test_async_compile", _ASYNC),
    ("test_cache.py", "test_no_cache_(callable|module_as_global)", _KEPT),
    ("test_cache.py", "test_preload", _PRELOAD),
    ("test_cache.py", "test_(file|remote)_cache_manager", "tests the classes of upstream's cache"),
    (
        "test_cache.py",
        "test_(cache_key_independent|cache_closure_shadows)",
        _KEPT,
    ),
    (
        "test_cache.py",
        "test_higher_order_kernel",
        "counts what static_print says over kernels that upstream keeps on disk",
    ),
    ("test_compile_errors.py", "test_fp8_support", _FP8),
    ("test_conversions.py", r"test_typeconvert_upcast\[float8e(4b8|5b16)", _FP8),
    ("test_core.py", "test_math_member_fn_rejects_fp16", _WORDING),
    (
        "test_core.py",
        "test_zero_strided_tensors",
        "takes the context of an XPU, as the fork's tests do: no torch here knows one",
    ),
    (
        "test_compile_errors.py",
        "test_err_histogram_non_32bit_int",
        "wants histograms of 8, 16 and 64-bit integers refused, which work here",
    ),
    ("test_compile_errors.py", "test_err_nested_function_def", _WORDING),
    ("test_autotuner.py", "test_config_ir_override", _OVERRIDE),
    (
        "test_autotuner.py",
        "test_prune_configs_fractional_top_k_after_early_prune",
        "runs a tuner without a grid, over a kernel that is none",
    ),
    ("test_launch.py", "test_interpreter_implicit_cvt_bool", "tests a private function"),
    (
        "test_compile_errors.py",
        "test_err_in_unary_op",
        "wants `not (0, 0)` refused, which upstream calls a limitation; it is False here",
    ),
    (
        "test_compile_errors.py",
        "test_err_(in_binary_op|in_binary_operator|in_nested_call|in_builtin|static_assert)",
        _WORDING,
    ),
    (
        "test_compile_errors.py",
        "test_(returns_branched_on_non_constexpr|power_of_two_shapes|min_dot_size|unused_result"
        "|constexpr_annotated_global_var_access|dot_scaled_shape_verification)",
        _WORDING,
    ),
    ("test_autotuner.py", "test_prune_all_configs", _WORDING),
)

# What does not apply to interpreted kernels.
INTERPRETED: Table = (
    ("test_autotune_listener.py", "", "hears what was timed; interpreted kernels are not timed"),
    ("test_autotuner.py", "test_exceed_threads", _RESOURCES),
    ("test_autotuner.py", "test_hooks", _RESOURCES),
    ("test_cache.py", "test_annotation", _ALIGNMENT),
    ("test_cache.py", r"test_specialize\[(enable|disable_on_alignment)", _ALIGNMENT),
    (
        "test_cache.py",
        "test_jit_debug",
        "wants device_assert dropped without debug; interpreted, it is always checked",
    ),
    ("test_launch.py", "test_(load|multiple)_hook", _LOADING),
    ("test_cache.py", "test_module_load_unload", _LOADING),
)

# What does not apply to native ones.
NATIVE: Table = (
    (
        "test_autotuner.py",
        "test_hooks",
        "wants 100 pipeline stages to be too many; tkdebug takes as many as fit",
    ),
    ("test_core.py", "test_(assume|poison_return)", _IR_NAMES),
    (
        "test_core.py",
        "test_(optimize_thread_locality|no_rematerialization_op)",
        'counts `"tt.reduce"`, as MLIR prints ops without a text form of their own',
    ),
    (
        "test_core.py",
        "test_override_arch",
        "looks for cuda:90 and its like in the IR; gfx942 and sm70 are no targets here",
    ),
    (
        "test_core.py",
        "test_(tl_range_num_stages|dot_mulbroadcasted)",
        "counts commit groups of cp.async: upstream has one for each load, tkdebug for each "
        "iteration",
    ),
    (
        "test_core.py",
        "test_tl_range_fuse",
        "wants nested loops made one (flatten), a hint that is kept and not acted upon",
    ),
    (
        "test_core.py",
        r"test_call\[1-noinline",
        "wants a launch with a noinline function in it refused, which works here",
    ),
    (
        "test_core.py",
        r"test_dot\[1-1-2-32-1-False-False-None-ieee-float8e5",
        "wants fp8 converted to fp16 for mma.sync; this GPU multiplies fp8",
    ),
    (
        "test_line_info.py",
        r"test_line_info\[call_noinline",
        "wants an instruction on the line of a call, which is inlined here",
    ),
    (
        "test_line_info.py",
        r"test_line_info\[autotune",
        "wants an instruction on the line of a loop that runs once, which is no loop here",
    ),
    (
        "test_line_info.py",
        r"test_line_info_env\[1",
        "wants a kernel without line tables (TRITON_DISABLE_LINE_INFO); here they always are",
    ),
    ("test_line_info.py", "test_line_info_ir_source", "compiles a file of libtriton's IR"),
    ("test_tuple.py", "test_passing_nested_tuple_with_constexpr_and_jit_hook", _PRELOAD),
    (
        "test_tensor_descriptor.py",
        "test_make_tensor_descriptor_(matmul|loop_carried)",
        "looks for tensor maps that a kernel makes for itself",
    ),
)

# The same, for tests that apply and fail: the reason is printed beside them.
KNOWN_FAILURES: Table = (
    (
        "test_launch.py",
        "test_memory_leak",
        "wants under 30 kB kept after 100 launches; the CUDA stand-in's caches hold up to 91 kB, "
        "reached after some thousand launches and not exceeded",
    ),
    (
        "test_cache.py",
        "test_cache_closure",
        "assigns to the value inside a constexpr that a kernel was compiled with; rebinding the "
        "variable is noticed, this is not",
    ),
    (
        "test_cache.py",
        "test_conflicting_global",
        "a kernel that reads a plain global is refused for that, with other words",
    ),
    (
        "test_cache.py",
        "test_(constexpr_fn_change|invalid_constexpr_fn)",
        "edits or hashes the source of a constexpr_function, which has no such attribute here",
    ),
    (
        "test_cache.py",
        "test_annotation",
        "wants a kernel of its own for an annotated integer that is 1",
    ),
    (
        "test_cache.py",
        "test_jit_debug",
        "wants device_assert dropped without debug from the IR that is kept, where it still is",
    ),
    (
        "test_subprocess.py",
        r"test_print\[(device_print_scalar|no_arg_print|print_no_arg)",
        "wants a scalar, or text alone, printed by each of 128 threads; here one prints it, once",
    ),
)


def files_of(checkout: Path) -> list[str]:
    """The test files of a checkout, below unit/."""
    unit = checkout / "python" / "test" / "unit"
    there = [
        unit.glob("test_*.py"),
        unit.glob("language/test_*.py"),
        unit.glob("runtime/test_*.py"),
    ]
    return sorted(str(path.relative_to(unit)) for paths in there for path in paths)


def reason(test_id: str, mode: str) -> str | None:
    """Why the test does not apply in `mode` ("interpret" or "native"); None when it does."""
    return _look_up(NOT_APPLICABLE + (NATIVE if mode == "native" else INTERPRETED), test_id)


def known_failure(test_id: str) -> str | None:
    """Why the test fails; None when there is no known reason."""
    return _look_up(KNOWN_FAILURES, test_id)


def _look_up(table: Table, test_id: str) -> str | None:
    path, _, name = test_id.partition("::")
    for file, pattern, why in table:
        if path.endswith(file) and re.match(pattern, name):
            return why
    return None
