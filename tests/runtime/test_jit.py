import linecache
import runpy
import sys

import pytest
import torch

import tkdebug
from tkdebug.compiler.tensor import constexpr
from tkdebug.errors import CompileError, LaunchError, UnsupportedError, UsageError
from tkdebug.knobs import scope
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.compile import options as launch_options
from tkdebug.runtime.device.driver import has_real_gpu
from tkdebug.runtime.errors import (
    ArgumentTypeError,
    GridError,
    MissingArtifactError,
    NoDeviceError,
    UnknownOptionError,
)
from tkdebug.runtime.launch.interpreted_kernel import Estimate


@tkdebug.jit
def scale(x_ptr, n, factor, BLOCK: constexpr = 64):
    """Scale x."""


@pytest.fixture
def x():
    return torch.zeros(128)


def test_jit_attributes():
    assert scale.__name__ == "scale"
    assert scale.__doc__ == "Scale x."
    assert scale.__module__ == __name__
    assert scale.arg_names == ["x_ptr", "n", "factor", "BLOCK"]
    assert [p.num for p in scale.params] == [0, 1, 2, 3]
    assert [p.is_constexpr for p in scale.params] == [False, False, False, True]
    assert scale.params[3].default == 64
    assert scale.params[3].has_default
    assert not scale.params[0].has_default
    assert scale.constexprs == [3]
    assert scale.src.startswith("def scale(x_ptr, n, factor, BLOCK: constexpr = 64):")


def test_jit_with_arguments():
    @tkdebug.jit(do_not_specialize=["n"], do_not_specialize_on_alignment=[0], noinline=True)
    def kernel(x, n):
        pass

    assert kernel.params[1].do_not_specialize
    assert kernel.params[0].do_not_specialize_on_alignment
    assert kernel.noinline


def test_jit_refuses_what_is_no_function():
    with pytest.raises(UsageError, match="Python function"):
        tkdebug.jit(print)


def test_direct_call_raises_as_upstream():
    with pytest.raises(RuntimeError, match=r"Cannot call @triton\.jit'd outside of the scope"):
        scale(1, 2, 3)


def test_launch_passes_run_time_values(launches, x):
    scale[(4,)](x, 128, 2.0)
    (launch,) = launches
    assert launch.grid == (4, 1, 1)
    assert launch.values[0] is x
    assert launch.values[1:] == [128, 2.0]
    assert launch.record is None


@pytest.mark.parametrize(
    ("grid", "dimensions"),
    [
        (3, (3, 1, 1)),
        ((3,), (3, 1, 1)),
        ([3, 2], (3, 2, 1)),
        (torch.Size([3, 2, 5]), (3, 2, 5)),
        (lambda meta: (meta["n"] // meta["BLOCK"], meta["x_ptr"].dim()), (2, 1, 1)),
    ],
)
def test_grid_forms(launches, x, grid, dimensions):
    scale[grid](x, 128, 2.0)
    assert launches[0].grid == dimensions


def test_grid_function_sees_plain_constants(launches, x):
    scale[lambda meta: (128 // meta["BLOCK"],)](x, 128, 2.0, BLOCK=constexpr(32))
    assert launches[0].grid == (4, 1, 1)


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ((2.5,), "grid[0] is 2.5 (float), expected an int"),
        ((1, -1), "grid[1] is -1, expected 0 or more"),
        ((), "has 0 axes, expected 1 to 3"),
        ((1, 1, 1, 1), "has 4 axes, expected 1 to 3"),
        ("abc", "grid is a str"),
        (None, "grid is a NoneType"),
        ((1, 70000), "limit along y is 65535; put the long axis first, or loop in the kernel"),
        ((1 << 31,), "limit along x is 2147483647; loop in the kernel"),
        (lambda meta: 2.0, "grid is a float"),
    ],
)
def test_grid_errors(launches, x, grid, words):
    with pytest.raises(GridError) as caught:
        scale[grid](x, 128, 2.0)
    assert words in str(caught.value)
    assert "scale" in str(caught.value)
    assert launches == []


def test_zero_grid_launches_nothing(launches, x):
    kernel = scale[(4, 0)](x, 128, 2.0)
    assert kernel.name == "scale"
    assert launches == []


def test_missing_argument_is_named(launches, x):
    with pytest.raises(TypeError, match="missing argument `factor`") as caught:
        scale[(1,)](x, 128)
    assert isinstance(caught.value, LaunchError)


def test_several_missing_arguments_are_named(launches):
    with pytest.raises(TypeError, match="missing arguments `x_ptr`, `n`"):
        scale[(1,)](factor=2)


def test_doubled_argument_is_named(launches, x):
    with pytest.raises(TypeError, match="`n` twice"):
        scale[(1,)](x, 128, 2.0, n=3)


def test_surplus_arguments(launches, x):
    with pytest.raises(TypeError, match="takes 4 arguments, got 5"):
        scale[(1,)](x, 128, 2.0, 64, 5)


def test_unknown_keyword_is_named(launches, x):
    with pytest.raises(KeyError) as caught:
        scale[(1,)](x, 128, 2.0, BLOK=64)
    assert str(caught.value).startswith("kernel scale: keyword argument BLOK was specified")


def test_gone_keyword_says_why(launches, x):
    with pytest.raises(KeyError, match="current stream"):
        scale[(1,)](x, 128, 2.0, stream=0)


@pytest.mark.parametrize("options", [{"num_warps": 3}, {"num_warps": 0}, {"num_stages": -1}])
def test_bad_option_values(launches, x, options):
    with pytest.raises(LaunchError, match=next(iter(options))):
        scale[(1,)](x, 128, 2.0, **options)


def test_unsupported_argument_is_reported_once_clear(launches):
    words = r"kernel scale: argument `x_ptr`: cannot pass a builtins\.str"
    with pytest.raises(TypeError, match=words):
        scale[(1,)]("x", 128, 2.0)
    with pytest.raises(OverflowError, match=r"argument `n`: .* more than 64 bits"):
        scale[(1,)](torch.zeros(2), 1 << 64, 2.0)


def test_options_reach_metadata(launches, x):
    kernel = scale[(1,)](x, 128, 2.0, num_warps=8, num_stages=2, maxnreg=128, launch_pdl=True)
    assert kernel.metadata.num_warps == 8
    assert kernel.metadata.num_stages == 2
    assert kernel.metadata.maxnreg == 128
    assert kernel.metadata.launch_pdl


def test_extern_libs_as_dict(launches, x):
    kernel = scale[(1,)](x, 128, 2.0, extern_libs={"libdevice": "a.bc"})
    assert kernel.src.options.extern_libs == (("libdevice", "a.bc"),)
    assert scale[(1,)](x, 128, 2.0, extern_libs={"libdevice": "a.bc"}) is kernel


def test_option_that_is_also_a_parameter_sets_both(launches):
    @tkdebug.jit
    def kernel(num_warps: constexpr):
        pass

    compiled = kernel[(1,)](num_warps=8)
    assert compiled.metadata.num_warps == 8
    assert compiled.src.constants == {"num_warps": 8}


def test_same_specialisation_is_compiled_once(launches, x):
    first = scale[(1,)](x, 128, 2.0)
    assert scale[(2,)](x, 256, 3.0) is first
    assert scale[(2,)](torch.ones(3), n=256, factor=3.0, BLOCK=64) is first


@pytest.mark.parametrize(
    "other",
    [
        dict(n=1), dict(n=2**40), dict(factor=2), dict(BLOCK=32), dict(BLOCK=64.0),
        dict(num_warps=8), dict(x_ptr=torch.zeros(3, dtype=torch.float16)), dict(x_ptr=None),
        dict(debug=True),
    ],
)  # fmt: skip
def test_other_specialisation_is_compiled_anew(launches, x, other):
    first = scale[(1,)](x, 128, 2.0)
    second = scale[(1,)](**{"x_ptr": x, "n": 128, "factor": 2.0, **other})
    assert second is not first
    assert second.hash != first.hash


def test_keyword_only_parameters(launches, x):
    @tkdebug.jit
    def kernel(a, *, b, C: constexpr = 4):
        pass

    kernel[(1,)](x, b=7)
    assert launches[0].values[1:] == [7]


def test_variadic_keywords_are_refused(launches, x):
    @tkdebug.jit
    def kernel(**rest):
        pass

    with pytest.raises(UnsupportedError, match=r"\*\*rest"):
        kernel[(1,)](x)


def test_parameter_names_that_shadow_builtins(launches, x):
    @tkdebug.jit
    def kernel(int, options, bind, type: constexpr):
        pass

    kernel[(1,)](x, 5, 6, "t")
    assert launches[0].values[1:] == [5, 6]


def test_pre_run_hook_gets_arguments(launches, x):
    @tkdebug.jit
    def kernel(a, b):
        pass

    seen = []
    kernel.add_pre_run_hook(lambda *args, **kwargs: seen.append((args, kwargs)))
    kernel[(1,)](x, b=2)
    assert seen[0][1] == {"b": 2}
    with pytest.raises(UsageError, match="expected a function"):
        kernel.add_pre_run_hook(3)


def test_warmup_compiles_and_launches_nothing(launches):
    kernel = scale.warmup(torch.float32, 128, 2.0, grid=(1,))
    assert kernel.src.signature["x_ptr"] == "*fp32"
    assert launches == []


def test_repr_names_the_kernel(launches, x):
    @tkdebug.jit(repr=lambda s: f"k_{s.signature['x'][1:]}_{s.constants['N']}")
    def kernel(x, N: constexpr):
        pass

    assert kernel[(1,)](x, 4).name == "k_fp32_4"


@pytest.mark.skipif(has_real_gpu(), reason="asks what is answered without a GPU")
def test_native_mode_needs_a_gpu(launches, x):
    with tkdebug.mode("native"), pytest.raises(NoDeviceError, match="native mode needs"):
        scale[(1,)](x, 128, 2.0)
    assert launches == []


def test_interpret_overrides_mode(launches, x):
    with tkdebug.mode("native"):
        scale.interpret[(2,)](x, 128, 2.0)
    assert launches[0].grid == (2, 1, 1)


def test_compiled_kernel_launches_again(launches, x):
    kernel = scale.warmup(x, 128, 2.0, grid=(1,))
    kernel._init_handles()
    kernel[(5, 1, 1)](x, 256, 3.0, 64)
    assert launches[0].grid == (5, 1, 1)
    assert launches[0].values[1:] == [256, 3.0]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((0, 128, 2.0, 64), "`x_ptr` is 0"),
        ((None, 128, 2.0, 32), "`x_ptr` is None"),
        ((torch.zeros(2), 128, 2.0, 32), "BLOCK: constexpr = 64"),
        ((torch.zeros(2, dtype=torch.int8), 128, 2.0, 64), "a tensor of torch.int8"),
        ((torch.zeros(2), 128), "takes all 4 arguments by position"),
    ],
)
def test_compiled_kernel_refuses_other_arguments(launches, x, values, words):
    kernel = scale.warmup(x, 128, 2.0, grid=(1,))
    with pytest.raises(LaunchError) as caught:
        kernel[(1,)](*values)
    assert words in str(caught.value)


@pytest.mark.parametrize("version", ["3.7", "3.9"])
def test_constants_at_the_end_of_a_compiled_kernel_may_be_left_out(launches, x, version):
    kernel = scale.warmup(x, 128, 2.0, grid=(1,))
    with scope(triton_version=version):
        kernel[(5,)](x, 256, 3.0)
        assert launches[0].values[1:] == [256, 3.0]
        with pytest.raises(LaunchError, match="takes all 4 arguments by position"):
            kernel[(5,)](x, 256)
    with scope(triton_version="3.6"):
        with pytest.raises(LaunchError, match="takes all 4 arguments by position"):
            kernel[(5,)](x, 256, 3.0)


def test_compiled_kernel_estimates(launches, x):
    kernel = scale.warmup(x, 128, 2.0, grid=(1,))
    assert isinstance(kernel.n_regs, Estimate)
    assert kernel.n_regs > 0
    assert kernel.n_spills == 0
    assert isinstance(kernel.metadata.shared, Estimate)
    assert kernel.metadata.shared > 0
    assert kernel.metadata.target.backend == "cuda"


def test_compiled_kernel_asm(launches, x):
    kernel = scale.warmup(x, 128, 2.0, grid=(1,))
    assert "def scale" in kernel.asm["source"]
    assert list(kernel.asm) == ["source", "ttir"]
    assert "ptx" not in kernel.asm
    for stage in ("ptx", "sass", "ttgir"):
        with pytest.raises(MissingArtifactError, match=f"has no {stage}"):
            kernel.asm[stage]
    with pytest.raises(KeyError, match="no stage 'foo'"):
        kernel.asm["foo"]


def test_source_not_available_shows_at_the_launch(x):
    namespace = {}
    exec("def kernel(x):\n    pass\n", namespace)
    kernel = tkdebug.jit(namespace["kernel"])
    faults = []
    hook = Hook(fault=faults.append)
    HOOKS.add(hook)
    try:
        with pytest.raises(CompileError, match="kernel source not available"):
            kernel[(1,)](x)
    finally:
        HOOKS.remove(hook)
    assert [fault.kind for fault in faults] == ["compile-error"]
    assert faults[0].kernel == "kernel"


def test_hooks_get_kernel_and_record(launches, x):
    @tkdebug.jit(launch_metadata=lambda grid, metadata, args: {"g": grid, "n": args["n"]})
    def kernel(x, n, B: constexpr):
        pass

    seen = []
    hook = Hook(
        enter=lambda kernel, record: seen.append(("enter", kernel, record.duration_ns)),
        exit=lambda kernel, record: seen.append(("exit", kernel, record)),
    )
    HOOKS.add(hook)
    try:
        compiled = kernel[(2, 3)](x.view(2, 64), 5, 1, num_warps=2)
    finally:
        HOOKS.remove(hook)
    assert [name for name, *_ in seen] == ["enter", "exit"]
    assert seen[0][1] is compiled
    assert seen[0][2] is None
    record = seen[1][2]
    assert record.grid == (2, 3, 1)
    assert record.duration_ns > 0
    assert record.options == {"num_warps": 2, "num_stages": 3, "num_ctas": 1}
    assert record.kernel_hash == compiled.hash
    assert record.user_metadata() == {"g": (2, 3, 1), "n": 5}
    tensor, scalar, constant = record.arguments
    assert (tensor.name, tensor.type, tensor.shape, tensor.strides) == (
        "x", "*fp32", (2, 64), (64, 1),
    )  # fmt: skip
    assert (scalar.type, scalar.value, scalar.shape) == ("i32", "5", None)
    assert (constant.type, constant.value) == ("constexpr", "1")


def test_record_tells_of_a_failed_launch(launches, x, monkeypatch):
    from tkdebug.runtime.launch.interpreted_kernel import InterpretedKernel

    def fail(*arguments):
        raise ValueError("broken")

    monkeypatch.setattr(InterpretedKernel, "_execute", fail)
    records = []
    hook = Hook(exit=lambda kernel, record: records.append(record))
    HOOKS.add(hook)
    try:
        with pytest.raises(ValueError, match="broken"):
            scale[(1,)](x, 128, 2.0)
    finally:
        HOOKS.remove(hook)
    assert records[0].error == "ValueError: broken"
    assert records[0].duration_ns > 0


def load_module(path, text, monkeypatch):
    import importlib.util

    # Bytecode of a text of the same size, written in the same second, would be taken for it.
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    path.write_text(text)
    linecache.checkcache(str(path))
    module_spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    return module


TEXT = """
import tkdebug
import tkdebug.compiler.tensor as tl
N = tl.constexpr({n})
OTHER = 5

@tkdebug.jit
def inner(x):
    return x + {inner}

@tkdebug.jit
def kernel(x):
    OTHER = 3
    return inner(x) + N

@tkdebug.jit
def even(n):
    return odd(n - 1)

@tkdebug.jit
def odd(n):
    return even(n - 1)
"""


def test_cache_key_follows_callees_and_constants(tmp_path, monkeypatch):
    def key(n, inner):
        path = tmp_path / "kernels.py"
        return load_module(path, TEXT.format(n=n, inner=inner), monkeypatch).kernel.cache_key

    base = key(1, 1)
    assert key(1, 1) == base
    assert key(2, 1) != base
    assert key(1, 2) != base


def test_cache_key_follows_line_numbers(tmp_path, monkeypatch):
    path = tmp_path / "kernels.py"
    first = load_module(path, TEXT.format(n=1, inner=1), monkeypatch).kernel.cache_key
    second = load_module(path, "\n" + TEXT.format(n=1, inner=1), monkeypatch).kernel.cache_key
    assert first != second


def test_cache_key_of_recursive_functions_ends(tmp_path, monkeypatch):
    module = load_module(tmp_path / "kernels.py", TEXT.format(n=1, inner=1), monkeypatch)
    assert module.even.cache_key != module.odd.cache_key


def test_cache_key_ignores_shadowed_globals(tmp_path, monkeypatch):
    module = load_module(tmp_path / "kernels.py", TEXT.format(n=1, inner=1), monkeypatch)
    base = module.kernel.cache_key
    module.OTHER = 6
    module.kernel.hash = None
    assert module.kernel.cache_key == base


def test_cache_key_tells_closures_apart():
    def make(n):
        size = constexpr(n)

        @tkdebug.jit
        def kernel(x):
            return x + size

        return kernel

    assert make(1).cache_key == make(1).cache_key
    assert make(1).cache_key != make(2).cache_key


def test_edited_source_is_compiled(x):
    @tkdebug.jit
    def kernel(x):
        GENERATE  # noqa: B018, F821

    before = kernel.cache_key
    kernel._unsafe_update_src(kernel.src.replace("GENERATE", "return x"))
    assert kernel.cache_key != before
    assert "return" in kernel.src
    assert kernel.kernel_source.definition.lineno == kernel.fn.__code__.co_firstlineno + 1


def test_mistyped_option_names_the_one_that_was_meant(x):
    with pytest.raises(UnknownOptionError, match=r"num_warp .*; did you mean num_warps\?"):
        scale.interpret[(1,)](x, 128, 2.0, num_warp=4)
    with pytest.raises(UnknownOptionError, match=r"BLOK .*; did you mean BLOCK\?"):
        scale.interpret[(1,)](x, 128, 2.0, BLOK=16)


@pytest.fixture
def told_anew():
    """Options that other tests have used are reported again."""
    launch_options._tell_ignored.cache_clear()


def test_options_for_amd_are_ignored_when_interpreted_and_reported_once(x, capsys, told_anew):
    for _ in range(2):
        scale.interpret[(1,)](x, 128, 2.0, waves_per_eu=2, matrix_instr_nonkdim=16, kpack=2)
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[2].partition(":")[0] for line in told] == [
        " launch option kpack",
        " launch option matrix_instr_nonkdim",
        " launch option waves_per_eu",
    ]
    assert all("AMD's GPUs, ignored here; a launch on NVIDIA's refuses it" in line for line in told)


def test_options_for_amd_are_refused_natively_by_name(x):
    """Triton raises `KeyError`, which our error derives from."""
    with tkdebug.mode("native"), pytest.raises(KeyError, match=r"waves_per_eu .* AMD's GPUs"):
        scale.warmup(x, 128, 2.0, waves_per_eu=2, grid=(1,))


def test_options_of_nvidia_that_change_no_result_are_taken(x, capsys, told_anew):
    with_them = scale.interpret[(1,)](x, 128, 2.0, sched4reg=True, min_shared_mem=64, num_warps=2)
    told = capsys.readouterr().err.splitlines()
    assert [line.split()[3] for line in told] == ["min_shared_mem:", "sched4reg:"]
    assert with_them.hash == scale.warmup(x, 128, 2.0, num_warps=2, grid=(1,)).hash


def test_arguments_that_do_not_fit_are_reported_without_the_binder_s_own_error(x):
    with pytest.raises(ArgumentTypeError) as raised:
        scale.interpret[(1,)](x, 128)
    assert raised.value.__context__ is None


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are not bytes there")
def test_kernel_of_a_file_whose_name_is_no_utf8(tmp_path, x):
    path = tmp_path / "kernel\udcff.py"
    path.write_text(
        "import tkdebug, tkdebug.language as tl\n"
        "@tkdebug.jit\n"
        "def one(x_ptr):\n"
        "    tl.store(x_ptr, 1.0)\n"
    )
    runpy.run_path(str(path))["one"].interpret[(1,)](x)
    assert x.tolist()[:2] == [1.0, 0.0]
