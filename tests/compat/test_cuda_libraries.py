"""Surroundings of CUDA in scripts: profilers, collectives, defaults, other libraries' memory."""

import os

import numpy as np
import pytest
import torch

from tkdebug.compat import cuda_standin

pytestmark = pytest.mark.skipif(cuda_standin.cuda_usable(), reason="a real CUDA device is here")


@pytest.fixture(autouse=True)
def stand_in():
    with cuda_standin.install() as installed:
        yield installed


def test_profilers_run_without_a_device(capfd):
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        torch.ones(3, device="cuda") + 1
    assert "aten::add" in profile.key_averages().table(sort_by="cpu_time_total")
    with torch.autograd.profiler.emit_nvtx(), torch.autograd.profiler.profile(use_device="cuda"):
        torch.ones(3, device="cuda")
    assert "Failed to record" not in capfd.readouterr().err


def test_profiled_regions():
    torch.cuda.profiler.start()
    torch.cuda.profiler.stop()
    with torch.cuda.profiler.profile():
        torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStart())
    with torch.cuda.nvtx.range("step {}", 3):
        torch.cuda.nvtx.mark("here")


def test_nccl_is_gloo(capfd):
    store = torch.distributed.HashStore()
    assert torch.distributed.is_nccl_available()
    torch.distributed.init_process_group("nccl", store=store, rank=0, world_size=1)
    try:
        x = torch.ones(2, device="cuda")
        torch.distributed.all_reduce(x)
        group = torch.distributed.new_group([0], backend="nccl")
        torch.distributed.barrier(group=group)
        assert torch.distributed.get_backend() == "gloo"
        assert x.tolist() == [1, 1]
    finally:
        torch.distributed.destroy_process_group()
    assert os.environ.get("RANK") is None


@pytest.mark.filterwarnings("ignore:.*set_default_tensor_type")
def test_default_tensor_type():
    torch.set_default_tensor_type("torch.cuda.HalfTensor")
    try:
        made = torch.zeros(2)
        assert (made.dtype, made.is_cuda) == (torch.float16, True)
    finally:
        torch.set_default_tensor_type(torch.FloatTensor)
    assert not torch.zeros(2).is_cuda


def test_recurrent_layers_do_without_cudnn(recwarn):
    layer = torch.nn.LSTM(4, 8).cuda()
    assert layer(torch.ones(3, 2, 4, device="cuda"))[0].is_cuda
    assert not [warning for warning in recwarn if "cuDNN" in str(warning.message)]


def test_module_of_the_device():
    assert torch.get_device_module() is torch.cuda
    assert torch.get_device_module("cuda") is torch.cuda
    assert torch.get_device_module("cpu") is torch.cpu


def test_libraries_that_are_asked_for_are_the_cpus():
    before = torch.backends.cuda.preferred_linalg_library()
    assert torch.backends.cuda.preferred_linalg_library("cusolver") == before
    before = torch.backends.cuda.preferred_blas_library()
    assert torch.backends.cuda.preferred_blas_library("cublaslt") == before
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    x = 2 * torch.eye(3, device="cuda")
    assert torch.equal(torch.linalg.inv(x) @ x, torch.eye(3, device="cuda"))


def test_dlpack_keeps_tensors_where_they_are():
    x = torch.ones(2, device="cuda")
    assert torch.from_dlpack(x).is_cuda
    assert torch.from_dlpack(x).data_ptr() == x.data_ptr()
    assert not torch.from_dlpack(np.ones(2)).is_cuda


def test_data_parallel_over_the_one_device():
    model = torch.nn.DataParallel(torch.nn.Linear(3, 2).cuda())
    assert model(torch.ones(4, 3, device="cuda")).is_cuda


def test_synchronisation_debugging_and_sensors():
    torch.cuda.set_sync_debug_mode("warn")
    assert torch.cuda.get_sync_debug_mode() == 1
    torch.cuda.set_sync_debug_mode("default")
    torch.cuda._sleep(1000)
    assert torch.cuda.utilization() == torch.cuda.temperature() == 0
    assert "NVIDIA H200" in repr(torch.cuda.get_device_properties())
