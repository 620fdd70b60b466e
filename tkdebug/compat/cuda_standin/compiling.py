# ruff: noqa: SLF001 (torch offers what a stand-in must change only under private names)
"""`torch.compile` on the stand-in's device: Dynamo and Inductor see CUDA tensors, kernels are ours.

Dynamo is to trace a function as it would on a machine with a GPU: it gets fake tensors on cuda:0
for tensors with a mark, and does not see the function mode that keeps the marks. Its guards look
at the real tensors, which are the CPU's when it compiles and when it runs. Inductor then writes
Triton kernels, which are interpreted when they are launched.
"""

from __future__ import annotations

import functools
import textwrap
import threading
from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.export

from tkdebug.compat.cuda_standin import placement
from tkdebug.compat.cuda_standin.device_guard import stand_in_for_devices
from tkdebug.compat.cuda_standin.function_mode import CudaStandIn
from tkdebug.compat.cuda_standin.model_lines import (
    at_model_line,
    calling_frame,
    launched_from,
    origins_of,
    with_origins,
)
from tkdebug.compiler.tensor import is_jit_function
from tkdebug.errors import TkError, UnsupportedError
from tkdebug.findings.reporting import REFINEMENTS
from tkdebug.runtime.arguments.binder import spec_of
from tkdebug.terminal_text import tell

# On a user's kernel in a graph: the node that launches it.
_NODE = "_tkdebug_node"


class Replacing(Protocol):
    """What replaces attributes, and puts them back."""

    def set(self, owner: object, name: str, value: object) -> None:
        """Replace `owner.name`."""

    def on_restore(self, undo: Callable[[], None]) -> None:
        """Call `undo` when things are put back."""


def compile_for_stand_in(patches: Replacing, mode: CudaStandIn) -> None:
    """Have `torch.compile` and `torch.export.export` prepare torch's compiler when first used."""

    @functools.cache
    def prepare() -> bool:
        reason = _prepare(patches, mode)
        if reason:
            known = f"the compiler of torch {torch.__version__} is not known to tkdebug"
            tell(f"torch.compile runs its functions eagerly: {known} ({reason})")
        return not reason

    compile, export = torch.compile, torch.export.export

    @functools.wraps(compile)
    def compile_prepared(model: Any = None, **options: Any) -> Any:
        if prepare():
            return compile(model, **options)
        return (lambda function: function) if model is None else model

    @functools.wraps(export)
    def export_prepared(*arguments: Any, **options: Any) -> Any:
        prepare()
        return export(*arguments, **options)

    patches.set(torch, "compile", compile_prepared)
    patches.set(torch.export, "export", export_prepared)


def _prepare(patches: Replacing, mode: CudaStandIn) -> str:
    """Patch torch's compiler; why that is not possible, "" if it is."""
    _forget_triton()
    patches.on_restore(_forget_triton)
    undo = stand_in_for_devices()
    if undo is None:
        return "its devices have no place for another guard"
    patches.on_restore(undo)
    try:
        _patch_dynamo(patches, mode)
        _patch_autograd(patches)
        _patch_inductor(patches)
        _patch_failures(patches)
        _patch_user_kernels(patches)
    except (ImportError, AttributeError) as error:
        return str(error)
    return ""


def _forget_triton() -> None:
    """Let torch look anew for Triton, which comes and goes with the stand-in."""
    import torch.utils._triton

    for function in vars(torch.utils._triton).values():
        if callable(getattr(function, "cache_clear", None)):
            function.cache_clear()


def _patch_dynamo(patches: Replacing, mode: CudaStandIn) -> None:
    from torch._dynamo.variables.optimizer import OptimizerVariable
    from torch._dynamo.variables.torch_function import SymbolicTorchFunctionState
    from torch._subclasses.meta_utils import MetaTensorDescriber

    begin = SymbolicTorchFunctionState.__init__

    @functools.wraps(begin)
    def without_ours(self: Any, *arguments: Any, **keywords: Any) -> None:
        begin(self, *arguments, **keywords)
        kept = [each for each in self.mode_stack if not _is_ours(_mode_of(each))]
        self.mode_stack = type(self.mode_stack)(kept)

    patches.set(SymbolicTorchFunctionState, "__init__", without_ours)
    describe = MetaTensorDescriber.describe_tensor

    @functools.wraps(describe)
    def on_its_device(self: Any, t: torch.Tensor, **keywords: Any) -> Any:
        described = describe(self, t, **keywords)
        if described.device.type == "cpu" and placement.on_cuda(t):
            object.__setattr__(described, "device", placement.CUDA)
        return described

    patches.set(MetaTensorDescriber, "describe_tensor", on_its_device)
    trace_optimizer = OptimizerVariable.call_method

    @functools.wraps(trace_optimizer)
    def call_method(self: Any, tx: Any, name: str, *arguments: Any) -> Any:
        if name != "_init_group":
            return trace_optimizer(self, tx, name, *arguments)
        # Dynamo calls it, to have the real state, with all modes off.
        begin = self.value._init_group

        def begin_group(*arguments: Any, **keywords: Any) -> Any:
            with mode:
                return begin(*arguments, **keywords)

        vars(self.value)["_init_group"] = begin_group
        try:
            return trace_optimizer(self, tx, name, *arguments)
        finally:
            del vars(self.value)["_init_group"]

    patches.set(OptimizerVariable, "call_method", call_method)


def _patch_autograd(patches: Replacing) -> None:
    """Let autograd trace through functions of fake CUDA tensors, for which it has no streams.

    Its C++ code sees the CPU's device on the tensors that it is given, which are functional
    ones. Python sees theirs, and what that C++ code makes for "their" device is CUDA's.
    """
    from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode

    wrap = torch.Tensor._make_wrapper_subclass

    def on_cpu(cls: Any, *arguments: Any, **keywords: Any) -> Any:
        if cls is FunctionalTensor:
            arguments = tuple(
                placement.CPU if isinstance(each, torch.device) and each.type == "cuda" else each
                for each in arguments
            )
        return wrap(cls, *arguments, **keywords)

    patches.set(torch.Tensor, "_make_wrapper_subclass", staticmethod(on_cpu))
    patches.set(FunctionalTensor, "device", property(lambda self: self.elem.device))
    patches.set(FunctionalTensor, "is_cuda", property(lambda self: self.elem.is_cuda))
    patches.set(FunctionalTensor, "is_cpu", property(lambda self: self.elem.is_cpu))
    run = FunctionalTensorMode.__torch_dispatch__

    @functools.wraps(run)
    def dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        wanted = (kwargs or {}).get("device")
        if wanted is not None and torch.device(wanted).type == "cpu" and _engine.runs:
            kwargs = {**kwargs, "device": placement.CUDA}
        return run(self, func, types, args, kwargs)

    patches.set(FunctionalTensorMode, "__torch_dispatch__", dispatch)
    for owner in (torch.autograd, torch.autograd.graph):
        patches.set(owner, "_engine_run_backward", _noted(owner._engine_run_backward))


class _Engine(threading.local):
    """Whether autograd runs a backward pass in this thread."""

    runs = False


_engine = _Engine()


def _noted(backward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(backward)
    def run(*arguments: Any, **keywords: Any) -> Any:
        before, _engine.runs = _engine.runs, True
        try:
            return backward(*arguments, **keywords)
        finally:
            _engine.runs = before

    return run


def _is_ours(mode: object) -> bool:
    return type(mode).__module__.startswith("tkdebug.")


def _mode_of(variable: Any) -> object:
    original = getattr(variable, "original_value", None)
    return original() if callable(original) else getattr(variable, "value", None)


def _patch_inductor(patches: Replacing) -> None:
    from torch._inductor import compile_fx, config, output_code
    from torch._inductor.fx_passes import joint_graph, post_grad
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    from torch._inductor.select_algorithm import AlgorithmSelectorCache

    for module in (joint_graph, post_grad):
        # Patterns are traced from real tensors; what they match has no device.
        begin_patterns = module.lazy_init
        patches.set(module, "lazy_init", lambda device=None, of=begin_patterns: of(placement.CPU))
    patches.set(CachingAutotuner, "run", run_interpreted)
    patches.set(CachingAutotuner, "precompile", lambda self, *arguments, **keywords: None)
    choose = AlgorithmSelectorCache.__call__

    @functools.wraps(choose)
    def untimed(self: Any, name: str, choices: Any, *arguments: Any, **keywords: Any) -> Any:
        return choose(self, name, preferred(choices), *arguments, **keywords)

    patches.set(AlgorithmSelectorCache, "__call__", untimed)
    generate = compile_fx._InProcessFxCompile.codegen_and_compile

    @functools.wraps(generate)
    def without_modes(*arguments: Any, **keywords: Any) -> Any:
        # A backward graph is compiled when it first runs, with the stand-in's mode on.
        with torch._C.DisableTorchFunction():
            return generate(*arguments, **keywords)

    patches.set(compile_fx._InProcessFxCompile, "codegen_and_compile", without_modes)
    for owner in (compile_fx, output_code):
        if hasattr(owner, "cudagraphify"):
            patches.set(owner, "cudagraphify", lambda model, *rest, **keywords: model)
    for name in ("cudagraph_post_compile", "cudagraph_partition_post_compile"):
        if hasattr(output_code, name):
            patches.set(output_code, name, lambda *arguments, **keywords: None)
    patches.set(torch._C, "_cuda_cudaCachingAllocator_is_enabled", lambda: True)
    patches.set(config, "compile_threads", 1)
    # Kernels that are found in a cache have no graph whose lines could be shown.
    patches.set(config, "fx_graph_cache", False)


def _patch_failures(patches: Replacing) -> None:
    """Let a graph that cannot be compiled run as it was traced, and report the reason."""
    wrapper: Any = torch._TorchCompileInductorWrapper
    compile = wrapper.__call__

    @functools.wraps(compile)
    def or_as_traced(self: Any, model_: Any, inputs_: Any) -> Any:
        try:
            _refuse_autocast(model_)
            return compile(self, model_, inputs_)
        except Exception as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            reason = lines[0] if lines else type(error).__name__
            tell(f"torch.compile: a graph{_place(model_)} runs without being compiled: {reason}")
            return model_.forward

    patches.set(wrapper, "__call__", or_as_traced)


def _refuse_autocast(graph: Any) -> None:
    """Refuse what autocast rounds: autograd has the CPU's rules for fake CUDA tensors.

    Raises:
        UnsupportedError: it is in force, or entered by the graph.
    """
    enter = torch.amp.autocast_mode._enter_autocast
    if torch.is_autocast_enabled("cpu") or any(n.target is enter for n in graph.graph.nodes):
        raise UnsupportedError("torch.autocast in compiled functions takes a GPU")


def _place(graph: Any) -> str:
    """Where the first op of a graph is written."""
    for origin in origins_of(graph.graph.nodes):
        return f" that begins at {origin.frame.file}:{origin.frame.line}"
    return ""


def preferred(choices: Any) -> list[Any]:
    """Of several ways to compute a node the one that is taken without timing: a Triton template."""
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
    written = _as_written(kernel)
    if written is None:
        return kernel[grid](**given)
    with launched_from(calling_frame()):
        return written[grid](**given)


def _as_written(kernel: Any) -> Any:
    """The user's kernel that a generated one is a copy of; None where it is Inductor's own."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    users: list[Any] = list(kernel_side_table.id_to_kernel.values())
    for user in users:
        while not is_jit_function(user) and hasattr(user, "fn"):
            user = user.fn
        if is_jit_function(user) and user.__name__ == kernel.__name__:
            if _body(user) == _body(kernel):
                return user
    return None


def _body(kernel: Any) -> str:
    text = textwrap.dedent(kernel.kernel_source.text)
    return text[text.index("def ") :].strip()


def _patch_user_kernels(patches: Replacing) -> None:
    """Let torch know what a kernel writes, from its IR: without, it copies every argument."""
    from torch._higher_order_ops import triton_kernel_wrap
    from torch._inductor import ir
    from torch._inductor.codegen.triton import TritonScheduling
    from torch._inductor.virtualized import V

    for name in ("identify_accessed_tensors", "identify_mutated_tensors"):
        if hasattr(triton_kernel_wrap, name):
            analysis = _written_tensors if "mutated" in name else _accessed_tensors
            patches.set(triton_kernel_wrap, name, analysis)
    define: Any = TritonScheduling.define_kernel

    @functools.wraps(define)
    def with_lines(self: Any, src_code: str, node_schedule: Any, *rest: Any) -> Any:
        nodes = [each for each in node_schedule if getattr(each, "node", None) is not None]
        origins = [origin for each in nodes for origin in each.node.origins]
        return define(self, with_origins(src_code, origins), node_schedule, *rest)

    patches.set(TritonScheduling, "define_kernel", with_lines)
    user_kernel: Any = ir.UserDefinedTritonKernel
    lower: Any = user_kernel.__init__
    launch: Any = user_kernel.codegen

    @functools.wraps(lower)
    def of_its_node(self: Any, *arguments: Any, **keywords: Any) -> None:
        # Its origins are also those of what it reads.
        vars(self)[_NODE] = V.graph.current_node
        lower(self, *arguments, **keywords)

    @functools.wraps(launch)
    def after_its_line(self: Any, wrapper: Any) -> None:
        for origin in origins_of([vars(self)[_NODE]]):
            wrapper.writeline(str(origin))
        launch(self, wrapper)

    patches.set(ir.UserDefinedTritonKernel, "__init__", of_its_node)
    patches.set(ir.UserDefinedTritonKernel, "codegen", after_its_line)
    REFINEMENTS.append(at_model_line)
    patches.on_restore(lambda: REFINEMENTS.remove(at_model_line))


def _written_tensors(kernel: Any, arguments: Any, *rest: Any) -> list[str]:
    """The tensor arguments that a kernel may write to."""
    from tkdebug.compiler.dialects import tt
    from tkdebug.compiler.frontend import compile_to_tile_ir
    from tkdebug.compiler.ops.emitter import CompileOptions
    from tkdebug.interpreter.memory_usage import written_arguments

    tensors = [name for name, value in arguments.items() if _is_tensor(value)]
    specs = {}
    for parameter in kernel.params:
        value = _sample(arguments.get(parameter.name, parameter.default))
        specs[parameter.name] = spec_of(kernel.__name__, parameter, value)
    try:
        module = compile_to_tile_ir(kernel, specs, CompileOptions())
    except TkError:
        # The launch says what is wrong.
        return tensors
    written = written_arguments(module)
    if written is None:
        return tensors
    leaves = tt.Func(module.function).arg_names
    return [name for name in tensors if any(leaves[i].split(".")[0] == name for i in written)]


def _sample(value: Any) -> Any:
    """Something of the kind that a launch will pass."""
    if _is_tensor(value) and not isinstance(value, torch.Tensor):
        return torch.empty(0, dtype=value.get_dtype(), device="meta")
    is_symbolic = isinstance(value, torch.SymInt) or type(value).__module__.startswith("sympy")
    return 2 if is_symbolic else value


def _is_tensor(value: object) -> bool:
    return isinstance(value, torch.Tensor) or type(value).__name__ == "TensorBox"


def _accessed_tensors(kernel: Any, arguments: Any, *rest: Any) -> Any:
    from torch._higher_order_ops.triton_kernel_wrap import TensorAccesses
    from torch._inductor.dependencies import ReadWrites, StarDep
    from torch.utils._ordered_set import OrderedSet

    tensors = [name for name, value in arguments.items() if _is_tensor(value)]
    writes: Any = OrderedSet(StarDep(name) for name in _written_tensors(kernel, arguments))
    reads: Any = OrderedSet(StarDep(name) for name in tensors)
    return TensorAccesses(
        ReadWrites(reads=reads, writes=writes, index_exprs=OrderedSet()), can_fuse_epilogue=False
    )
