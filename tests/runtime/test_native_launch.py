"""The launch path above the driver: keys, grids, modes, errors."""

from dataclasses import replace

import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.errors import UnsupportedError
from tkdebug.knobs import scope
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.arguments.specialize import alignment_key, argument_spec
from tkdebug.runtime.arguments.tensor_descriptor import TensorDescriptor
from tkdebug.runtime.compile.native_compilation import refuse_options
from tkdebug.runtime.compile.options import LaunchOptions
from tkdebug.runtime.cuda import device as device_module
from tkdebug.runtime.cuda import driver_api
from tkdebug.runtime.cuda import platform as cuda_platform
from tkdebug.runtime.cuda.device import Device, check_resources
from tkdebug.runtime.device.platform import platform
from tkdebug.runtime.errors import (
    ArgumentTypeError,
    GridError,
    NoDeviceError,
    OutOfResources,
    PointerError,
)
from tkdebug.runtime.jit import function as jit_module
from tkdebug.runtime.launch import launch_writer

# The generated function of a jit function: keys, grids, modes. Tensors of the CPU pose as being on
# the current device, -1.


class FakeKernel:
    def __init__(self, key, values):
        self.key = key
        self.values = values
        self.guarded = ()
        self.next_action = None
        self.used_globals = ()
        self.launches = []
        self.hooked_launches = []

    def submit(self, x, y, z, stream, *passed):
        self.launches.append(((x, y, z), stream, passed))

    def launch_hooked(self, grid, stream, values, passed):
        self.hooked_launches.append((grid, stream, values, passed))


@pytest.fixture
def native(monkeypatch):
    """Native launches of CPU tensors; gives the kernels compiled, in order."""
    compiled = []

    def compile_native(self, key, device, values, options, is_warmup):
        self._specialization(values, options, alignment_key(self.params, values))
        kernel = self.kernels[key] = FakeKernel(key, values)
        kernel.options = options
        compiled.append(kernel)
        return kernel

    monkeypatch.setattr(jit_module.JITFunction, "compile_native", compile_native)
    monkeypatch.setattr(launch_writer, "_getters", lambda: ((lambda: -1), (lambda index: 77)))
    monkeypatch.setattr(device_module, "obstacle", lambda: None)
    monkeypatch.setattr(cuda_platform, "_driver_knows", lambda address: True)
    with tkdebug.mode("native"):
        yield compiled


def make_kernel():
    @tkdebug.jit
    def kernel(x, y, n, BLOCK: tl.constexpr = 64):
        pass

    return kernel


@pytest.fixture
def x():
    return torch.zeros(128)


def test_native_launch_passes_addresses_and_values(native, x):
    kernel = make_kernel()
    for _ in range(2):
        assert kernel[(2, 3)](x, x[1:], 5) is native[0]
    assert native[0].launches == [((2, 3, 1), 77, (x.data_ptr(), x.data_ptr() + 4, 5))] * 2
    assert len(native) == 1


@pytest.mark.parametrize(
    ("other", "is_new"),
    [
        ({"x": torch.zeros(128)}, False),
        ({"x": torch.zeros(128)[1:]}, True),
        ({"x": torch.zeros(128)[4:]}, False),
        ({"x": torch.zeros(128, dtype=torch.float16)}, True),
        ({"x": torch.nn.Parameter(torch.zeros(128))}, False),
        ({"x": None}, True),
        ({"n": 32}, False),
        ({"n": 33}, True),
        ({"n": 1}, True),
        ({"n": 1 << 40}, True),
        ({"n": 16.0}, True),
        ({"n": True}, True),
        ({"BLOCK": 32}, True),
        ({"BLOCK": 64}, False),
        ({"BLOCK": 64.0}, True),
        ({"BLOCK": True}, True),
        ({"BLOCK": "64"}, True),
        ({"num_warps": 8}, True),
    ],
)
def test_native_key(native, x, other, is_new):
    kernel = make_kernel()
    first = {"x": x, "y": x, "n": 16, "BLOCK": 64}
    kernel[(1,)](**first)
    kernel[(1,)](**{**first, **other})
    assert (len(native) == 2) is is_new


@pytest.mark.parametrize("values", [(64, 16), (1, 33), (1.5, 0), (None, -16), (True, 1 << 40)])
def test_equal_native_keys_mean_equal_specialisations(native, x, values):
    kernel = make_kernel()
    tensors = (x, x[1:], x.half(), (x, 3))
    by_key = {}
    for first in (*tensors, *values):
        for n in (*values, 48, 1, 2):
            compiled = kernel[(1,)](first, x, n)
            given = (first, x, n, 64)
            specs = [argument_spec(p, v) for p, v in zip(kernel.params, given, strict=True)]
            meaning = repr((specs, alignment_key(kernel.params, given)))
            assert by_key.setdefault(compiled.key, meaning) == meaning


@pytest.mark.parametrize("first_is_descriptor", [True, False])
def test_equal_keys_of_descriptors_mean_equal_specialisations(native, first_is_descriptor):
    """Whether or not the launch function has a branch for descriptors, which it has by its hint."""
    kernel = make_kernel()
    describe = TensorDescriptor.from_tensor
    x = torch.zeros(32, 32)
    repeated = describe(x, [8, 8])
    repeated.strides = (0, 1)
    values = [
        describe(x, [8, 8]), describe(torch.zeros(64, 32), [8, 8]), describe(x, [8, 16]),
        describe(x, [8, 8], "nan"), describe(x.half(), [8, 8]), describe(x[:, :24], [8, 8]),
        describe(torch.nn.Parameter(x), [8, 8]), describe(x, (8, 8)), repeated, x, None, 7,
    ]  # fmt: skip
    by_key = {}
    for value in values if first_is_descriptor else values[::-1]:
        compiled = kernel[(1,)](value, x, 5)
        assert compiled.launches[-1][2][0] == (x.data_ptr() if value is x else value)
        given = (value, x, 5, 64)
        specs = [argument_spec(p, v) for p, v in zip(kernel.params, given, strict=True)]
        padding = getattr(value, "padding", "")
        meaning = repr((specs, padding, alignment_key(kernel.params, given)))
        assert by_key.setdefault(compiled.key, meaning) == meaning
    assert len(set(by_key.values())) == len(by_key) == 9


def test_descriptor_of_a_tensor_elsewhere_is_refused(native, x, monkeypatch):
    monkeypatch.setattr(cuda_platform, "_driver_knows", lambda address: False)
    monkeypatch.setattr(launch_writer, "_getters", lambda: ((lambda: 0), (lambda index: 77)))
    described = TensorDescriptor.from_tensor(x.view(16, 8), [8, 8])
    with pytest.raises(PointerError, match="argument `x` is on cpu"):
        make_kernel()[(1,)](described, 1, 2)


def test_annotated_parameters_have_one_type(native, x):
    @tkdebug.jit
    def kernel(x: tl.pointer_type(tl.int8), n: tl.int64, f: tl.float32):
        pass

    kernel[(1,)](x, 16, 1.0)
    kernel[(1,)](x, 1 << 40, 2)
    assert len(native) == 1
    kernel[(1,)](x, 1, 1.0)
    assert len(native) == 2


def test_alignment_is_not_noted_where_it_is_not_wanted(native, x):
    @tkdebug.jit(do_not_specialize=["n"], do_not_specialize_on_alignment=["x"])
    def kernel(x, n):
        pass

    for tensor in (x, x[1:]):
        for n in (1, 16, 17):
            kernel[(1,)](tensor, n)
    assert len(native) == 1
    assert native[0].launches[0][2] == (x.data_ptr(), 1)


@pytest.mark.parametrize(
    ("grid", "dimensions"),
    [
        ((5,), (5, 1, 1)),
        ((5, 6), (5, 6, 1)),
        ((5, 6, 7), (5, 6, 7)),
        ([5, 6], (5, 6, 1)),
        (5, (5, 1, 1)),
        (lambda meta: (meta["n"] * meta["BLOCK"],), (1024, 1, 1)),
        (lambda meta: [2], (2, 1, 1)),
        ((torch.tensor(3),), (3, 1, 1)),
    ],
)
def test_native_grids(native, x, grid, dimensions):
    make_kernel()[grid](x, x, 16)
    assert native[0].launches[0][0] == dimensions


@pytest.mark.parametrize("grid", [(0,), (4, 0), (4, 4, 0)])
def test_zero_sized_grid_launches_nothing(native, x, grid):
    assert make_kernel()[grid](x, x, 16) is native[0]
    assert native[0].launches == []


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ((1 << 31,), "limit along x is 2147483647"),
        ((1, 65536), "limit along y is 65535"),
        ((1, 1, 65536), "limit along z is 65535"),
        ((-1,), "is -1, expected 0 or more"),
        ((1.5,), r"grid\[0\] is 1.5"),
        ((1, 1, 1, 1), "4 axes"),
        ((), "0 axes"),
        (None, "NoneType"),
    ],
)
def test_native_grid_errors(native, x, grid, words):
    with pytest.raises(GridError, match=words):
        make_kernel()[grid](x, x, 16)
    assert native[0].launches == []


def test_native_binding_errors_name_the_argument(native, x):
    kernel = make_kernel()
    for _ in range(2):
        with pytest.raises(ArgumentTypeError, match="missing argument `n`"):
            kernel[(1,)](x, x)
        with pytest.raises(ArgumentTypeError, match="takes 4 arguments, got 5"):
            kernel[(1,)](x, x, 1, 64, 2)
        with pytest.raises(TypeError, match=r"multiple values for argument 'x'|got `x` twice"):
            kernel[(1,)](x, x, 1, x=x)
        kernel[(1,)](x, x, 16)
    with pytest.raises(ArgumentTypeError, match=r"kernel .*: argument `y`: cannot pass a"):
        kernel[(1,)](x, "y", 16)
    with pytest.raises(KeyError, match="wide was specified"):
        kernel[(1,)](x, x, 16, wide=3)


def test_unhashable_options_compile_once(native, x, monkeypatch):
    kernel = make_kernel()
    kernel[(1,)](x, x, 16, extern_libs={"a": "b"})
    assert native[0].options == {"extern_libs": {"a": "b"}}
    assert len(native[0].launches) == 1


def test_parameter_named_like_an_option_sets_both(native, x):
    @tkdebug.jit
    def kernel(x, num_warps: tl.constexpr = 4):
        pass

    kernel[(1,)](x, num_warps=8)
    assert native[0].options == {"num_warps": 8}
    kernel[(1,)](x)
    assert native[1].options == {}
    kernel[(1,)](x, num_warps=8)
    assert len(native) == 2


def test_keyword_only_parameters(native, x):
    @tkdebug.jit
    def kernel(x, *, n):
        pass

    kernel[(1,)](x, n=3)
    assert native[0].launches[0][2] == (x.data_ptr(), 3)
    with pytest.raises(ArgumentTypeError, match="missing argument `n`"):
        kernel[(1,)](x)


def test_warmup_launches_nothing(native):
    kernel = make_kernel()
    kernel.warmup(torch.float32, torch.float16, 16, grid=(1,))
    assert native[0].launches == []
    kernel[(1,)](torch.zeros(4), torch.zeros(4, dtype=torch.float16), 16)
    assert len(native) == 1


def test_hooks_get_the_values_and_what_is_passed(native, x):
    hook = Hook(enter=lambda kernel, record: None)
    HOOKS.add(hook)
    try:
        make_kernel()[(2,)](x, x, 16)
    finally:
        HOOKS.remove(hook)
    (launch,) = native[0].hooked_launches
    assert launch == ((2, 1, 1), 77, (x, x, 16, 64), (x.data_ptr(), x.data_ptr(), 16))
    assert native[0].launches == []


def test_pre_run_hooks_are_called_before(native, x):
    kernel = make_kernel()
    kernel[(1,)](x, x, 16)
    seen = []
    kernel.add_pre_run_hook(lambda *args, **kwargs: seen.append((len(args), sorted(kwargs))))
    kernel[(1,)](x, x, n=16)
    assert seen == [(2, ["n"])]


def test_kernels_chosen_for_interpretation_are_not_launched_natively(native, launches, x):
    kernel = make_kernel()
    kernel[(1,)](x, x, 16)
    with scope(interpret_kernels=("kern*",)):
        kernel[(1,)](x, x, 16)
    kernel.interpret[(1,)](x, x, 16)
    with tkdebug.mode("interpret"):
        kernel[(1,)](x, x, 16)
    assert len(native[0].launches) == 1
    assert len(launches) == 3


def test_changed_global_is_reported(native, x):
    from tkdebug.compiler.frontend.scope import UsedGlobal
    from tkdebug.runtime.errors import GlobalChangedError

    kernel = make_kernel()
    compiled = kernel[(1,)](x, x, 16)
    namespace = {"SIZE": 4}
    compiled.used_globals = (UsedGlobal("SIZE", 4, namespace),)
    compiled.guarded = ((namespace.get, "SIZE", 4),)
    kernel[(1,)](x, x, 16)
    namespace["SIZE"] = 5
    with pytest.raises(GlobalChangedError, match="`SIZE` has changed"):
        kernel[(1,)](x, x, 16)


@pytest.fixture
def on_device_0(native, monkeypatch):
    monkeypatch.setattr(launch_writer, "_getters", lambda: ((lambda: 0), (lambda index: 0)))
    return native


def test_host_tensors_are_refused(on_device_0, monkeypatch, x):
    monkeypatch.setattr(cuda_platform, "_driver_knows", lambda address: False)
    words = r"argument `y` is on cpu, .*cannot be accessed from Triton \(cpu tensor\?\)"
    with pytest.raises(ValueError, match=words) as caught:
        make_kernel()[(1,)](None, x, 16)
    assert isinstance(caught.value, PointerError)
    with pytest.raises(PointerError, match="argument `y`"):
        make_kernel()[(1,)](None, (x, 3), 16)


def test_pinned_tensors_are_what_the_driver_says(on_device_0, monkeypatch, x):
    asked = []
    knows = "_driver_knows"
    monkeypatch.setattr(cuda_platform, knows, lambda address: asked.append(address) or True)
    make_kernel()[(1,)](None, x, 16)
    assert asked == [x.data_ptr()]
    assert len(on_device_0[0].launches) == 1


def test_empty_host_tensors_pass(on_device_0, monkeypatch):
    monkeypatch.setattr(cuda_platform, "_driver_knows", lambda address: False)
    make_kernel()[(1,)](None, torch.zeros(0), 16)
    with pytest.raises(PointerError, match="on meta"):
        make_kernel()[(1,)](None, torch.zeros(4, device="meta"), 16)


def test_native_without_a_gpu_says_so(native, monkeypatch, x):
    monkeypatch.setattr(launch_writer, "_getters", lambda: ((lambda: 0), (lambda index: 0)))
    monkeypatch.setattr(device_module, "obstacle", lambda: "native mode needs a GPU")
    with pytest.raises(NoDeviceError, match="needs a GPU"):
        make_kernel()[(1,)](x, x, 16)


# What stands around code generation.


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"extern_libs": (("a", "b"),)}, "option extern_libs"),
        ({"ir_override": "k.ttir"}, "option ir_override"),
        ({"ptx_options": "-v"}, "option ptx_options"),
    ],
)
def test_options_that_native_code_cannot_honour(options, words):
    with pytest.raises(UnsupportedError, match=words):
        refuse_options("k", LaunchOptions(**options), TARGETS["sm_90a"])


def h200():
    return Device(0, "H200", 1, 9, 0, 232448, 1024, 65536, 132, 32, 1, 1, 1)


@pytest.mark.parametrize("capability", [(13, 0), (14, 2)])
def test_gpu_newer_than_known_ones_is_interpreted(monkeypatch, capsys, capability):
    major, minor = capability
    newer = replace(h200(), name="B200", major=major, minor=minor)
    monkeypatch.setattr(device_module, "has_real_gpu", lambda: True)
    monkeypatch.setattr(cuda_platform, "has_real_gpu", lambda: True)
    monkeypatch.setattr(device_module, "current_device", lambda: newer)
    monkeypatch.setattr(device_module, "obstacle", device_module.obstacle.__wrapped__)
    with platform(cuda_platform.CudaPlatform()):
        assert tkdebug.current_mode() == "interpret"
        assert tkdebug.current_mode() == "interpret"
        with pytest.raises(NoDeviceError, match=f"B200: sm_{major}{minor} "):
            cuda_platform.CUDA.require()
    said = capsys.readouterr().err
    assert said == (
        f"tkdebug: kernels are interpreted although a GPU is there: B200: sm_{major}{minor} "
        f"(compute capability {major}.{minor}) is newer than the GPUs that this version of tkdebug "
        f"compiles for ({', '.join(TARGETS)})\n"
    )


def test_resources_name_what_to_lower():
    check_resources(h200(), 1024, 232448)
    with pytest.raises(
        OutOfResources, match=r"shared memory, Required: 300000.*232448.*num_stages"
    ):
        check_resources(h200(), 128, 300000)
    with pytest.raises(OutOfResources, match=r"threads, Required: 2048.*1024; lower num_warps"):
        check_resources(h200(), 2048, 0)


def test_cuda_errors_have_the_drivers_name(monkeypatch):
    monkeypatch.setattr(driver_api, "status_name", lambda status: "CUDA_ERROR_ILLEGAL_ADDRESS")
    text = str(driver_api.cuda_error(700, "kernel k: launch"))
    assert text.startswith("kernel k: launch: CUDA_ERROR_ILLEGAL_ADDRESS (700); an earlier kernel")


@pytest.fixture
def driver_answers(monkeypatch):
    """A driver for CUDA 13 with one H200, whose answers a test changes."""
    answers = {
        "cuInit": None,
        "cuDriverGetVersion": 13000,
        "cuDeviceGetCount": 1,
        "cuDeviceGet": 0,
        "cuDeviceGetName": b"NVIDIA H200\0\0",
        "cuDevicePrimaryCtxRetain": 0x1000,
        "cuDeviceGetAttribute": 9,
    }
    monkeypatch.setattr(driver_api, "call", lambda name, *arguments: answers[name])
    device_module.device.cache_clear()
    yield answers
    device_module.device.cache_clear()


def test_device_of_the_driver(driver_answers):
    found = device_module.device(0)
    assert (found.name, found.context, found.capability) == ("NVIDIA H200", 0x1000, (9, 9))
    with pytest.raises(UnsupportedError, match=r"compute capability 9\.9"):
        _ = found.target


def test_driver_that_is_too_old(driver_answers):
    driver_answers["cuDriverGetVersion"] = 11080
    with pytest.raises(NoDeviceError, match=r"CUDA 11\.8, expected 12\.0 or newer; update"):
        device_module.device(0)


def test_device_that_is_not_there(driver_answers):
    with pytest.raises(NoDeviceError, match="CUDA device 1: there are 1, counted from 0"):
        device_module.device(1)


@tkdebug.jit
def variadic(OUT, *terms, factor=1):
    pass


def test_variadic_parameter_takes_the_positional_arguments_that_are_left(native):
    out = torch.zeros(4)
    variadic[(1,)](out, 1.5, 2, out)
    variadic[(1,)](out, 2.5, 7, out, factor=3.0)
    variadic[(1,)](out)
    first, second, third = native
    assert [kernel.values[1] for kernel in native] == [(1.5, 2, out), (2.5, 7, out), ()]
    assert first.key != second.key != third.key
    variadic[(1,)](out, 4.5, 9, out)
    assert len(native) == 3
    assert first.launches[-1][2][1][:2] == (4.5, 9)
