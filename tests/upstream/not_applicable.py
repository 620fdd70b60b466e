"""What of upstream's tests does not apply to tkdebug, and why; and what is known to fail."""

from __future__ import annotations

import re

_IR_TEXT = "compares the text of libtriton's IR"
_WORDING = "compares upstream's wording of an error or of its position, word by word"
_FP8 = "wants an fp8 type refused on this GPU; interpreted, every fp8 type works, as upstream's do"
_ALIGNMENT = "counts compiles by alignment, which only native kernels are compiled for"
_OVERRIDE = "replaces the IR of upstream's code generator"
_LOADING = "hears a binary being loaded; an interpreted kernel has none"
_ASYNC = "compiles in other threads (AsyncCompileMode): only upstream's compiles take that long"
_KEPT = "reads used_global_vals, upstream's own record of a compile"
_RESOURCES = "exceeds a limit of the GPU; interpretation has none"

# (file, test name with its parameters, as patterns that match from the start; the reason)
NOT_APPLICABLE: tuple[tuple[str, str, str], ...] = (
    ("test_annotations.py", "test_float_annotation", _IR_TEXT),
    (
        "test_annotations.py",
        "test_int_annotation",
        f"{_IR_TEXT}; and its kernel stores past its one-element tensor, which is a fault",
    ),
    ("test_autotuner.py", "test_override_", _OVERRIDE),
    ("test_autotuner.py", "test_exceed_threads", _RESOURCES),
    ("test_autotuner.py", "test_hooks", _RESOURCES),
    ("test_cache.py", "test_annotation", _ALIGNMENT),
    ("test_cache.py", r"test_specialize\[(enable|disable_on_alignment)", _ALIGNMENT),
    ("test_cache.py", "test_jit_noinline", _IR_TEXT),
    ("test_cache.py", "test_async_compile", _ASYNC),
    ("test_cache.py", "test_no_cache_(callable|module_as_global)", _KEPT),
    ("test_cache.py", "test_preload", "loads a binary that was compiled before"),
    (
        "test_cache.py",
        "test_jit_debug",
        "wants device_assert dropped without debug; interpreted, it is always checked",
    ),
    (
        "test_cache.py",
        "test_higher_order_kernel",
        "counts what static_print says over kernels that upstream keeps on disk",
    ),
    ("test_launch.py", "test_(load|multiple)_hook", _LOADING),
    ("test_compile_errors.py", "test_fp8_support", _FP8),
    ("test_conversions.py", r"test_typeconvert_upcast\[float8e(4b8|5b16)", _FP8),
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

# The same, for tests that apply and fail: the reason is printed beside them.
KNOWN_FAILURES: tuple[tuple[str, str, str], ...] = (
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
)


def reason(test_id: str) -> str | None:
    """Why the test does not apply; None when it does."""
    return _look_up(NOT_APPLICABLE, test_id)


def known_failure(test_id: str) -> str | None:
    """Why the test fails; None when there is no known reason."""
    return _look_up(KNOWN_FAILURES, test_id)


def _look_up(table: tuple[tuple[str, str, str], ...], test_id: str) -> str | None:
    path, _, name = test_id.partition("::")
    for file, pattern, why in table:
        if path.endswith(file) and re.match(pattern, name):
            return why
    return None
