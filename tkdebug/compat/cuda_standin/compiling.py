# ruff: noqa: SLF001 (torch offers what a stand-in must change only under private names)
"""`torch.compile` on the stand-in's device: tkdebug interprets Inductor's Triton kernels.

Dynamo, autograd and Inductor see CUDA tensors, as on a machine with a GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

import torch
import torch.export
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map

from tkdebug.compat.around_torch.unwritten_memory import WatchReads
from tkdebug.compat.replacements import Replacements, set_option
from tkdebug.errors import Frame
from tkdebug.runtime.jit.function import JITFunction

_HALVES = (torch.float16, torch.bfloat16)
# On Inductor's autotuner of a kernel that it wrote.
_GENERATED = "_tkdebug_generated"


def compile_for_stand_in(patches: Replacements) -> None:
    """Have `torch.compile` and `torch.export.export` prepare torch's compiler when first used."""

    @functools.cache
    def prepare() -> str:
        why = _prepare(patches)
        if not why:
            return ""
        from tkdebug.compat.inductor.uncompiled import report_unknown_compiler

        return report_unknown_compiler(why)

    compile, export = torch.compile, torch.export.export

    @functools.wraps(compile)
    def compile_prepared(model: Any = None, **options: Any) -> Any:
        reason = prepare()
        if not reason:
            return compile(model, **options)
        from tkdebug.compat.inductor.uncompiled import as_written

        return as_written(model, reason)

    @functools.wraps(export)
    def export_prepared(*arguments: Any, **options: Any) -> Any:
        prepare()
        return export(*arguments, **options)

    patches.set(torch, "compile", compile_prepared)
    patches.set(torch.export, "export", export_prepared)


def _prepare(patches: Replacements) -> str:
    """Patch torch's compiler; return why that is not possible, "" if it is."""
    # Of no use to scripts that compile nothing.
    from tkdebug.compat.inductor.model_lines import forget_triton, note_lines
    from tkdebug.compat.inductor.user_kernels import analyse_user_kernels

    forget_triton()
    patches.on_restore(forget_triton)
    try:
        _patch_dynamo(patches)
        _patch_convolutions(patches)
        _patch_inductor(patches)
        _patch_failures(patches)
        analyse_user_kernels(patches)
        note_lines(patches)
    except (ImportError, AttributeError) as error:
        return str(error)
    return ""


def _patch_dynamo(patches: Replacements) -> None:
    from torch._dynamo.variables.torch_function import SymbolicTorchFunctionState

    _run_untraced(patches, WatchReads.__torch_function__.__code__)
    begin = SymbolicTorchFunctionState.__init__

    @functools.wraps(begin)
    def without_ours(self: Any, *arguments: Any, **keywords: Any) -> None:
        begin(self, *arguments, **keywords)
        kept = [each for each in self.mode_stack if not _is_ours(_mode_of(each))]
        self.mode_stack = type(self.mode_stack)(kept)

    patches.set(SymbolicTorchFunctionState, "__init__", without_ours)


def _patch_convolutions(patches: Replacements) -> None:
    """Give results of convolutions the memory format that they have on the CPU."""
    for name in ("_select_conv_backend", "_conv_determine_backend_memory_format"):
        patches.set(torch._C, name, _as_on_cpu(getattr(torch._C, name)))


def _as_on_cpu(choose: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(choose)
    def run(*arguments: Any, **keywords: Any) -> Any:
        with _disable_current_modes():
            arguments, keywords = tree_map(_real, (arguments, keywords))
            return choose(*arguments, **keywords)

    return run


def _real(value: Any) -> Any:
    """Return an empty CPU tensor for a tensor, with halves as fp32; the number of a symbolic size.

    Other values are returned unchanged.
    """
    if isinstance(value, torch.SymInt):
        return value.node.hint
    if not isinstance(value, torch.Tensor):
        return value
    sizes, strides = map(_real, value.shape), map(_real, value.stride())
    dtype = torch.float32 if value.dtype in _HALVES else value.dtype
    return torch.empty_strided(tuple(sizes), tuple(strides), dtype=dtype)


def _run_untraced(patches: Replacements, code: CodeType) -> None:
    """Have Dynamo compile neither a function nor the functions that it calls.

    After a graph break Python runs torch's functions, and modes see them.
    """
    from torch._C._dynamo import eval_frame

    def set_action(action: Any) -> None:
        eval_frame.set_code_exec_strategy(code, eval_frame._FrameExecStrategy(action, action))

    set_action(eval_frame._FrameAction.SKIP)
    patches.on_restore(functools.partial(set_action, eval_frame._FrameAction.DEFAULT))


def _is_ours(mode: object) -> bool:
    return type(mode).__module__.startswith("tkdebug.")


def _mode_of(variable: Any) -> object:
    original = getattr(variable, "original_value", None)
    return original() if callable(original) else getattr(variable, "value", None)


def _patch_inductor(patches: Replacements) -> None:
    from torch._inductor import compile_fx, config, output_code
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    from torch._inductor.select_algorithm import AlgorithmSelectorCache

    patches.set(CachingAutotuner, "run", run_interpreted)
    patches.set(CachingAutotuner, "precompile", lambda self, *arguments, **keywords: None)
    choose = AlgorithmSelectorCache.__call__

    @functools.wraps(choose)
    def untimed(self: Any, name: str, choices: Any, *arguments: Any, **keywords: Any) -> Any:
        return choose(self, name, preferred(choices), *arguments, **keywords)

    patches.set(AlgorithmSelectorCache, "__call__", untimed)
    for owner in (compile_fx, output_code):
        if hasattr(owner, "cudagraphify"):
            patches.set(owner, "cudagraphify", lambda model, *rest, **keywords: model)
    for name in ("cudagraph_post_compile", "cudagraph_partition_post_compile"):
        if hasattr(output_code, name):
            patches.set(output_code, name, lambda *arguments, **keywords: None)
    patches.set(torch._C, "_cuda_cudaCachingAllocator_is_enabled", lambda: True)
    set_option(patches, config, "compile_threads", 1)
    # Whether padding pays is decided by the times of matrix products on the device.
    set_option(patches, config, "shape_padding", False)
    # Kernels that are found in a cache have no graph whose lines could be shown.
    set_option(patches, config, "fx_graph_cache", False)


def _patch_failures(patches: Replacements) -> None:
    """Let a graph that cannot be compiled run as it was traced, and report the reason."""
    from torch._dynamo.exc import RestartAnalysis

    from tkdebug.compat.inductor.uncompiled import report_graph

    wrapper: Any = torch._TorchCompileInductorWrapper
    compile = wrapper.__call__

    @functools.wraps(compile)
    def or_as_traced(self: Any, model_: Any, inputs_: Any) -> Any:
        try:
            return compile(self, model_, inputs_)
        except RestartAnalysis:
            # Dynamo traces the function again.
            raise
        except Exception as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            report_graph(lines[0] if lines else type(error).__name__, _first_line(model_))
            return model_.forward

    patches.set(wrapper, "__call__", or_as_traced)


def _first_line(graph: Any) -> Frame | None:
    """Return the first source line of a graph's ops, or None if no op has one."""
    from tkdebug.compat.inductor.model_lines import origins_of

    return next((origin.frame for origin in origins_of(graph.graph.nodes)), None)


def preferred(choices: Any) -> list[Any]:
    """Return one choice at most, without timing: the first Triton template, else the first one."""
    listed = [choice for choice in choices if choice is not None]
    templates = [choice for choice in listed if type(choice).__name__ == "TritonTemplateCaller"]
    return (templates or listed)[:1]


def run_interpreted(self: Any, *args: Any, stream: Any = None, **keywords: Any) -> Any:
    """`CachingAutotuner.run`: launch the kernel with its first configuration."""
    keywords.pop("benchmark_run", None)
    config, kernel = self.configs[0], self.fn
    passed, grid = self._interpret_args_grid(args, config)
    constants = {
        kernel.arg_names[key[0]] if isinstance(key, tuple) else key: value
        for key, value in self.triton_meta.get("constants", {}).items()
    }
    declared = {parameter.name for parameter in kernel.params if parameter.is_constexpr}
    names = [name for name in kernel.arg_names if name not in declared]
    if len(passed) != len(names):
        names = [name for name in names if name not in constants]
    given = {name: value for name, value in constants.items() if name in declared}
    given |= config.kwargs | keywords | dict(zip(names, passed, strict=False))
    given |= {"num_warps": config.num_warps, "num_stages": config.num_stages}
    from tkdebug.compat.inductor.model_lines import calling_frame, launched_from
    from tkdebug.compat.inductor.user_kernels import as_written

    written = as_written(kernel)
    if written is None:
        return _generated_kernel(self, constants)[grid](**given)
    with launched_from(calling_frame()):
        return written[grid](**given)


def _generated_kernel(autotuner: Any, constants: Mapping[str, Any]) -> Any:
    """Return the kernel as Inductor typed it: an int 1 is a constant only where it says so."""
    kept = vars(autotuner)
    if _GENERATED not in kept:
        kernel = autotuner.fn
        others = (each for each in kernel.params if not each.is_constexpr)
        typed = [each.name for each in others if each.name not in constants]
        kept[_GENERATED] = JITFunction(kernel.fn, do_not_specialize=typed)
    return kept[_GENERATED]
