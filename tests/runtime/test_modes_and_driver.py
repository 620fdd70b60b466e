import subprocess
import sys
import threading

import pytest
import torch

import tkdebug
from tkdebug.errors import LaunchError, UsageError
from tkdebug.knobs import scope
from tkdebug.runtime.arguments.tensor_stand_ins import MockTensor, TensorWrapper, reinterpret
from tkdebug.runtime.device.driver import compute_capability, driver, has_real_gpu
from tkdebug.runtime.device.platform import GPUTarget
from tkdebug.runtime.errors import (
    ArgumentTypeError,
    DescriptorError,
    OptionValueError,
    OutOfResources,
)
from tkdebug.runtime.launch.allocation import get_allocator, set_allocator

mode, current_mode = tkdebug.mode, tkdebug.current_mode


def test_auto_without_a_gpu_interprets():
    assert current_mode() == "interpret"


def test_modes_nest():
    with mode("native"):
        assert current_mode("k") == "native"
        with mode("interpret"):
            assert current_mode("k") == "interpret"
        assert current_mode("k") == "native"
    assert current_mode("k") == "interpret"


def test_knob_sets_the_default_mode():
    with scope(mode="native"):
        assert current_mode() == "native"
        with mode("auto"):
            assert current_mode() == "interpret"


def test_patterns_interpret_by_kernel_name():
    with mode("native"), scope(interpret_kernels=("softmax*", "add")):
        assert current_mode("softmax_kernel") == "interpret"
        assert current_mode("add") == "interpret"
        assert current_mode("adder") == "native"
        assert current_mode() == "native"


def test_unknown_mode():
    with pytest.raises(UsageError, match="got 'fast'"), mode("fast"):
        pass


def test_other_threads_follow_the_main_thread():
    seen = []

    def look():
        seen.append(current_mode())
        with mode("interpret"):
            seen.append(current_mode())

    with mode("native"):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert current_mode() == "native"
    assert seen == ["native", "interpret"]


@pytest.mark.skipif(has_real_gpu(), reason="asks what is answered without a GPU")
def test_driver_without_a_gpu():
    active = driver.active
    assert active.get_current_target() == GPUTarget("cuda", 90, 32)
    assert active.get_active_torch_device() == torch.device("cpu")
    assert active.get_current_device() == 0
    assert active.get_current_stream(0) == 0
    active.get_device_interface().synchronize()
    active.clear_cache(active.get_empty_cache_for_benchmark())
    properties = active.utils.get_device_properties(0)
    assert properties["max_shared_mem"] == 232448
    assert properties["multiprocessor_count"] == 132
    assert set(properties) == {
        "max_shared_mem", "max_num_regs", "multiprocessor_count", "warpSize",
        "sm_clock_rate", "mem_clock_rate", "mem_bus_width",
    }  # fmt: skip


def test_driver_can_be_replaced():
    other = object()
    driver.set_active(other)
    assert driver.active is other
    driver.reset_active()
    assert driver.active is driver.default


@pytest.mark.parametrize(("arch", "number"), [(None, 90), ("sm80", 80), ("sm_90a", 90), (120, 120)])
def test_compute_capability(arch, number):
    assert compute_capability(arch) == number


def test_compute_capability_refuses():
    with pytest.raises(OptionValueError, match="gfx942"):
        compute_capability("gfx942")
    with (
        scope(override_arch="h200"),
        pytest.raises(OptionValueError, match="TKDEBUG_OVERRIDE_ARCH: got 'h200'"),
    ):
        compute_capability("h200")


def test_allocator_must_be_set():
    with pytest.raises(LaunchError, match="set_allocator"):
        get_allocator()(16, 16, None)
    set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8))
    assert get_allocator()(16, 16, None).numel() == 16
    set_allocator(None)
    with pytest.raises(LaunchError):
        get_allocator()(16, 16, None)


def test_descriptor_from_tensor():
    x = torch.zeros(8, 16)
    descriptor = tkdebug.TensorDescriptor.from_tensor(x, [4, 16])
    assert tuple(descriptor.shape) == (8, 16)
    assert tuple(descriptor.strides) == (16, 1)
    assert descriptor.padding == "zero"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"strides": [16]}, "strides has 1 entries"),
        ({"block_shape": [3, 16]}, r"block_shape\[0\]: got 3, expected a power of 2"),
        ({"block_shape": [4.0, 16]}, "expected an int"),
        ({"block_shape": [2048, 1024]}, "at most 1048576"),
        ({"base": torch.zeros(65)[1:]}, "16 bytes"),
        ({"strides": [15, 1]}, r"strides\[0\]: got 15 elements, 60 bytes"),
        ({"strides": [16, 2]}, "last axis is contiguous"),
        ({"shape": [0, 16]}, r"shape\[0\]: got 0"),
        ({"shape": []}, "rank: got 0"),
        ({"padding": "one"}, "padding: got 'one'"),
        ({"padding": "nan", "base": torch.zeros(64, dtype=torch.int32)}, "floating-point"),
    ],
)
def test_descriptor_rules(changes, words):
    settings = dict(base=torch.zeros(64), shape=[4, 16], strides=[16, 1], block_shape=[2, 16])
    with pytest.raises(DescriptorError, match=words):
        tkdebug.TensorDescriptor(**{**settings, **changes})


def test_reinterpret():
    x = torch.zeros(4, dtype=torch.int8)
    wrapped = reinterpret(x, torch.uint8)
    assert isinstance(wrapped, TensorWrapper)
    assert wrapped.data_ptr() == x.data_ptr()
    assert reinterpret(wrapped, torch.int8) is x
    with pytest.raises(ArgumentTypeError, match="list"):
        reinterpret([1], torch.int8)


def test_mock_tensor_strides():
    assert MockTensor(torch.int8, [2, 3, 4]).stride() == (12, 4, 1)
    assert MockTensor.wrap_dtype(torch.int8).dtype == torch.int8
    assert MockTensor.wrap_dtype(3) == 3


def test_out_of_resources_keeps_its_fields_when_pickled():
    import pickle

    error = pickle.loads(pickle.dumps(OutOfResources(3, 2, "shared memory")))
    assert (error.required, error.limit, error.name) == (3, 2, "shared memory")
    assert "Required: 3, Hardware limit: 2" in str(error)


@pytest.mark.parametrize(
    ("n", "power"), [(0, 0), (1, 1), (2, 2), (3, 4), (1023, 1024), (1024, 1024)]
)
def test_next_power_of_2(n, power):
    assert tkdebug.next_power_of_2(n) == power


def test_cdiv():
    assert tkdebug.cdiv(10, 4) == 3
    assert tkdebug.cdiv(x=8, y=4) == 2


def test_exports_resolve():
    for name in tkdebug.__all__:
        if name not in ("language", "instrument"):
            assert getattr(tkdebug, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = tkdebug.nope


def test_import_loads_nothing_heavy():
    code = (
        "import sys, tkdebug, tkdebug.knobs\n"
        "assert not {'torch', 'numpy', 'llvmlite', 'textual'} & set(sys.modules)\n"
        "assert 'tkdebug.compiler' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_runtime_is_imported_without_torch():
    code = (
        "import sys\n"
        "from tkdebug import jit, autotune, Config, testing, driver\n"
        "assert 'torch' not in sys.modules, [m for m in sys.modules if 'tkdebug' in m]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
