"""The modules of `triton` that scripts import: the names of each, and their origins.

Responsible for the table alone: `finder` makes modules of its rows. A module or a name without a
row does not exist, and says so when it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class TritonModule:
    """One module of `triton`.

    Names are written as upstream calls them. `theirs=ours` is the value `ours` of tkdebug's module,
    and `theirs=ours()` is the result of that function when the module is loaded.

    Attributes:
        text: the module's docstring, after its name.
        names: its names by the module that has them, in `__all__`.
        unlisted: names that are not in `__all__`.
        loads: its submodules that are loaded with it, in `__all__`, too. A name of `names` wins
            over a submodule of the same name.
        mirrors: modules that are asked in turn for any other name; the `__all__` of the last is
            part of this module's.
        mirrors_private: whether they are asked for names that begin with `_`.
        is_package: whether it has submodules.
    """

    text: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    unlisted: Mapping[str, str] = field(default_factory=dict)
    loads: str = ""
    mirrors: tuple[str, ...] = ()
    mirrors_private: bool = True
    is_package: bool = False


MODULES: Mapping[str, TritonModule] = {
    "triton": TritonModule(
        "tkdebug under upstream's name",
        {
            "tkdebug.compat.finder": "__version__=upstream_version()",
            "tkdebug.compat.triton_api.compiler": "compile",
            "tkdebug.compiler.aggregates": "aggregate",
            "tkdebug.errors": "CompilationError=CompileError TritonError=TkError",
            "tkdebug.language": "must_use_result",
            "tkdebug.runtime.arguments.tensor_stand_ins": "MockTensor TensorWrapper reinterpret",
            "tkdebug.runtime.errors": "InterpreterError OutOfResources",
            "tkdebug.runtime.jit.constexpr_function": "cdiv constexpr_function next_power_of_2",
            "tkdebug.runtime.jit.function": "JITFunction KernelInterface jit",
            "tkdebug.runtime.launch.allocation": "set_allocator",
            "tkdebug.runtime.tune.autotune": "autotune",
            "tkdebug.runtime.tune.parameters": "Config heuristics",
        },
        loads="backends compiler errors knobs language runtime testing tools",
        is_package=True,
    ),
    "triton._C": TritonModule(
        "upstream's compiled code, of which scripts use cuBLAS alone",
        loads="libtriton",
        is_package=True,
    ),
    "triton._C.libtriton": TritonModule(
        "`nvidia.cublas.CublasLt`, with which benchmarks compare their kernels",
        {"tkdebug.compat.triton_api.libraries": "get_cache_invalidating_env_vars nvidia"},
    ),
    "triton._utils": TritonModule(
        "functions that torch and libraries use",
        {
            "tkdebug.compat.triton_api.libraries": (
                "find_paths_if get_iterable_path is_power_of_two"
            ),
            "tkdebug.runtime.jit.parameters": (
                "canonicalize_dtype=canonical_annotation type_canonicalisation_dict=CANONICAL_NAMES"
            ),
        },
    ),
    "triton.backends": TritonModule(
        "the one there is",
        {
            "tkdebug.compat.triton_api.compiler": "Backend BaseBackend backends=BACKENDS",
            "tkdebug.runtime.device.driver": "DriverBase=Driver",
        },
        loads="compiler driver",
        is_package=True,
    ),
    "triton.backends.compiler": TritonModule(
        names={
            "tkdebug.compat.triton_api.compiler": "BaseBackend",
            "tkdebug.runtime.device.platform": "GPUTarget",
        }
    ),
    "triton.backends.driver": TritonModule(
        names={"tkdebug.runtime.device.driver": "DriverBase=Driver GPUDriver=Driver"}
    ),
    "triton.compiler": TritonModule(
        names={
            "tkdebug.compat.triton_api.compiler": "ASTSource IRSource compile make_backend",
            "tkdebug.compat.triton_api.launch_hooks": "LazyDict",
            "tkdebug.errors": "CompilationError=CompileError",
            "tkdebug.runtime.launch.compiled_kernel": "CompiledKernel",
        },
        loads="compiler errors",
        is_package=True,
    ),
    "triton.compiler.compiler": TritonModule(
        names={
            "tkdebug.compat.triton_api.compiler": (
                "ASTSource IRSource compile make_backend triton_key"
            ),
            "tkdebug.compat.triton_api.launch_hooks": "LazyDict",
            "tkdebug.runtime.device.platform": "GPUTarget",
            "tkdebug.runtime.errors": "OutOfResources",
            "tkdebug.runtime.launch.compiled_kernel": "CompiledKernel",
        }
    ),
    "triton.compiler.errors": TritonModule(
        "every refusal of a kernel is one type here",
        {
            "tkdebug.errors": (
                "CompilationError=CompileError CompileTimeAssertionFailure=CompileError"
                " UnsupportedLanguageConstruct=CompileError TritonError=TkError"
            )
        },
    ),
    "triton.errors": TritonModule(names={"tkdebug.errors": "TritonError=TkError"}),
    "triton.experimental": TritonModule(is_package=True),
    "triton.experimental.gluon": TritonModule(
        "libraries import it on every GPU; its kernels are refused",
        {
            "tkdebug.compat.triton_api.libraries": "jit=gluon_jit",
            "tkdebug.runtime.jit.constexpr_function": "constexpr_function",
        },
        loads="language",
        is_package=True,
    ),
    "triton.experimental.gluon.language": TritonModule(
        "the names that it shares with `triton.language`",
        mirrors=("tkdebug.language",),
        mirrors_private=False,
        is_package=True,
    ),
    "triton.knobs": TritonModule(
        "upstream's switches over tkdebug's own",
        {
            "tkdebug.compat.triton_api.knobs": (
                "autotuning=AutotuningKnobs() cache=CacheKnobs() compilation=CompilationKnobs()"
                " language=LanguageKnobs() proton=ProtonKnobs() runtime=RuntimeKnobs()"
                " amd=amd_knobs() build=build_knobs() nvidia=nvidia_knobs()"
            ),
            "tkdebug.compat.triton_api.launch_hooks": "HookChain",
        },
    ),
    "triton.language": TritonModule(
        "tkdebug's language under upstream's name",
        {"tkdebug.compat.triton_api.libraries": "str_to_ty"},
        loads="core extra math random standard target_info",
        mirrors=("tkdebug.language",),
        is_package=True,
    ),
    "triton.language.core": TritonModule(
        "upstream's home of some of the language; here the whole of it",
        unlisted={
            "tkdebug.compat.triton_api.libraries": "CONSTEXPR_0 get_int_dtype",
            "tkdebug.compiler.aggregates": "_aggregate=aggregate",
        },
        mirrors=("tkdebug.language.core", "tkdebug.language"),
    ),
    "triton.language.extra": TritonModule(
        "libdevice, and the functions of one vendor",
        loads="cuda libdevice",
        is_package=True,
    ),
    "triton.language.extra.cuda": TritonModule(
        "tkdebug's module under upstream's name",
        loads="libdevice",
        mirrors=("tkdebug.language.extra.cuda",),
        is_package=True,
    ),
    "triton.language.extra.cuda.libdevice": TritonModule(
        "tkdebug's module under upstream's name", mirrors=("tkdebug.language.extra.libdevice",)
    ),
    "triton.language.extra.libdevice": TritonModule(
        "tkdebug's module under upstream's name", mirrors=("tkdebug.language.extra.libdevice",)
    ),
    "triton.language.math": TritonModule(
        "the elementwise mathematics of the language", mirrors=("tkdebug.language.math",)
    ),
    "triton.language.random": TritonModule(
        "upstream's home of some of the language; here the whole of it",
        mirrors=("tkdebug.language.random", "tkdebug.language"),
    ),
    "triton.language.standard": TritonModule(
        "upstream's home of some of the language; here the whole of it",
        mirrors=("tkdebug.language.standard", "tkdebug.language"),
    ),
    "triton.language.target_info": TritonModule(
        "what kernels are compiled for",
        {
            "tkdebug.language.target_info": (
                "cuda_capability_geq current_target is_cuda is_hip is_hip_cdna3 is_hip_cdna4"
            )
        },
    ),
    "triton.profiler": TritonModule(
        "Proton: tkdebug's profiling sessions under upstream's names",
        {
            "tkdebug.compat.proton.profile": (
                "DEFAULT_PROFILE_NAME activate deactivate finalize profile start"
            ),
            "tkdebug.compat.proton.scope": (
                "cpu_timed_scope enter_scope enter_state exit_scope exit_state metadata_state"
                " scope state"
            ),
        },
        loads="context data flags hooks mode profile scope specs state",
        is_package=True,
    ),
    "triton.profiler.context": TritonModule(names={"tkdebug.compat.proton.scope": "depth"}),
    "triton.profiler.data": TritonModule(
        "upstream 3.7 has it", {"tkdebug.compat.proton.profile": "get=profile_data"}
    ),
    "triton.profiler.flags": TritonModule(
        names={"tkdebug.compat.proton.profile": "ProfilerFlags flags"}
    ),
    "triton.profiler.hooks": TritonModule(
        names={"tkdebug.compat.proton.hooks": "HookManager InstrumentationHook LaunchHook"},
        is_package=True,
    ),
    "triton.profiler.hooks.hook": TritonModule(
        names={"tkdebug.compat.proton.hooks": "Hook HookManager"}
    ),
    "triton.profiler.hooks.instrumentation": TritonModule(
        names={"tkdebug.compat.proton.hooks": "InstrumentationHook"}
    ),
    "triton.profiler.hooks.launch": TritonModule(
        names={"tkdebug.compat.proton.hooks": "COMPUTE_METADATA_SCOPE_NAME LaunchHook"}
    ),
    "triton.profiler.language": TritonModule(
        "scopes inside of kernels",
        {
            "tkdebug.compat.proton.scope": (
                "disable_semantic enable_semantic enter_scope=enter_kernel_scope"
                " exit_scope=exit_kernel_scope"
            )
        },
    ),
    "triton.profiler.mode": TritonModule(
        "there are no modes", {"tkdebug.compat.proton.profile": "BaseMode"}
    ),
    "triton.profiler.profile": TritonModule(
        names={
            "tkdebug.compat.proton.profile": (
                "DEFAULT_PROFILE_NAME _select_backend=select_backend activate deactivate"
                " finalize profile start"
            )
        }
    ),
    "triton.profiler.proton": TritonModule(
        "the command", {"tkdebug.compat.proton.profile": "main"}
    ),
    "triton.profiler.scope": TritonModule(
        names={"tkdebug.compat.proton.scope": "cpu_timed_scope enter_scope exit_scope scope"}
    ),
    "triton.profiler.specs": TritonModule(
        names={"tkdebug.instrument.profiling.viewer": "max_bps max_flops"}
    ),
    "triton.profiler.state": TritonModule(
        names={
            "tkdebug.compat.proton.scope": "enter_state exit_state metadata_state state",
            "tkdebug.instrument.profiling.profiler": "COMPUTE_METADATA_SCOPE_NAME=METADATA_STATE",
        }
    ),
    "triton.profiler.viewer": TritonModule(
        names={"tkdebug.compat.proton.viewer": "main parse print_tree read show_metrics"}
    ),
    "triton.runtime": TritonModule(
        names={
            "tkdebug.runtime.arguments.tensor_stand_ins": "MockTensor TensorWrapper reinterpret",
            "tkdebug.runtime.device.driver": "driver",
            "tkdebug.runtime.errors": "InterpreterError OutOfResources",
            "tkdebug.runtime.jit.function": "JITFunction KernelInterface",
            "tkdebug.runtime.tune.autotune": "Autotuner autotune",
            "tkdebug.runtime.tune.parameters": "Config Heuristics heuristics",
        },
        loads="autotuner cache driver errors interpreter jit",
        is_package=True,
    ),
    "triton.runtime._allocation": TritonModule(
        names={
            "tkdebug.runtime.launch.allocation": (
                "Allocator Buffer NullAllocator set_allocator set_profile_allocator"
            )
        }
    ),
    "triton.runtime.autotuner": TritonModule(
        names={
            "tkdebug.runtime.errors": "AutotunerError OutOfResources PTXASError",
            "tkdebug.runtime.jit.function": "JITFunction KernelInterface",
            "tkdebug.runtime.tune.autotune": "Autotuner autotune",
            "tkdebug.runtime.tune.parameters": "Config Heuristics heuristics",
        }
    ),
    "triton.runtime.cache": TritonModule(
        "keys; the cache itself is tkdebug's own",
        {
            "tkdebug.compat.triton_api.compiler": "_base32=base32_of_hex triton_key",
            "triton": "knobs",
        },
    ),
    "triton.runtime.driver": TritonModule(
        names={"tkdebug.runtime.device.driver": "DriverConfig driver"}
    ),
    "triton.runtime.errors": TritonModule(
        names={
            "tkdebug.errors": "TritonError=TkError",
            "tkdebug.runtime.errors": "AutotunerError InterpreterError OutOfResources PTXASError",
        }
    ),
    "triton.runtime.interpreter": TritonModule(
        "only the type that libraries test for",
        {
            "tkdebug.compat.triton_api.compiler": "InterpretedFunction",
            "tkdebug.runtime.errors": "InterpreterError",
        },
    ),
    "triton.runtime.jit": TritonModule(
        "`JITCallable` is upstream's base class of jit functions that are not launched themselves",
        {
            "tkdebug.runtime.arguments.tensor_stand_ins": "MockTensor TensorWrapper reinterpret",
            "tkdebug.runtime.jit.constexpr_function": "ConstexprFunction constexpr_function",
            "tkdebug.runtime.jit.function": (
                "JITCallable=JITFunction JITFunction KernelInterface jit"
            ),
            "tkdebug.runtime.jit.parameters": (
                "KernelParam type_canonicalisation_dict=CANONICAL_NAMES"
            ),
        },
    ),
    "triton.testing": TritonModule(
        names={
            "tkdebug.runtime.benchmark.testing": (
                "Benchmark Mark assert_close cuda_memcheck do_bench do_bench_cudagraph"
                " do_bench_cudagraph_proton do_bench_proton get_dram_gbps get_max_simd_tflops"
                " get_max_tensorcore_tflops nvsmi perf_report set_gpu_clock"
            )
        }
    ),
    "triton.tools": TritonModule(loads="tensor_descriptor", is_package=True),
    "triton.tools.mxfp": TritonModule(
        names={"tkdebug.compat.triton_api.microscaled": "MXFP4Tensor MXScaleTensor"}
    ),
    "triton.tools.tensor_descriptor": TritonModule(
        names={"tkdebug.runtime.arguments.tensor_descriptor": "TensorDescriptor"}
    ),
}
