"""The stand-in's account of device memory."""

import gc

import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.compat import cuda_standin

pytestmark = pytest.mark.skipif(cuda_standin.cuda_usable(), reason="a real CUDA device is here")
MIB = 1 << 20


@pytest.fixture(autouse=True)
def stand_in():
    with cuda_standin.install() as installed:
        gc.collect()
        yield installed


@tkdebug.jit
def through_an_address(address):
    p = address.to(tl.pointer_type(tl.uint8))
    tl.store(p + tl.arange(0, 8), tl.full((8,), 3, tl.uint8))


def test_tensors_count_while_they_live():
    before = torch.cuda.memory_allocated()
    x = torch.empty(MIB, dtype=torch.uint8, device="cuda")
    small = torch.zeros(3, device="cuda")
    views = [x[1:], x.view(2, -1), x.detach()]
    assert torch.cuda.memory_allocated() - before == MIB + 512
    host = torch.zeros(MIB)
    assert torch.cuda.memory_allocated("cuda:0") - before == MIB + 512
    del x, small, host
    assert torch.cuda.memory_allocated() - before == MIB
    del views
    assert torch.cuda.memory_allocated() == before


def test_peak_is_the_most_since_it_was_reset():
    keep = torch.zeros(MIB, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated()
    assert torch.cuda.max_memory_allocated() == base
    y = keep + 1
    del y
    assert torch.cuda.memory_allocated() == base
    assert torch.cuda.max_memory_allocated() == base + 4 * MIB
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] == base
    assert stats["allocated_bytes.all.peak"] == base + 4 * MIB
    assert stats["num_alloc_retries"] == 0
    assert str(base) in torch.cuda.memory_summary()


def test_reserved_memory_goes_with_the_cache():
    torch.cuda.empty_cache()
    held = torch.cuda.memory_reserved()
    torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_reserved() >= 64 * MIB
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == held
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total


def test_too_much_is_out_of_memory_as_on_a_gpu():
    with pytest.raises(torch.cuda.OutOfMemoryError, match="CUDA out of memory"):
        torch.empty(1 << 52, device="cuda")
    with pytest.raises(torch.cuda.OutOfMemoryError, match="CUDA out of memory"):
        torch.ones(1 << 26, 1, device="cuda") + torch.ones(1, 1 << 26, device="cuda")
    with pytest.raises(RuntimeError, match="allocate memory") as caught:
        torch.empty(1 << 52)
    assert not isinstance(caught.value, torch.cuda.OutOfMemoryError)


def test_raw_memory_of_the_allocator():
    address = torch.cuda.caching_allocator_alloc(8)
    before = torch.cuda.memory_allocated()
    with tkdebug.mode("interpret"):
        through_an_address[(1,)](address)
    torch.cuda.caching_allocator_delete(address)
    assert torch.cuda.memory_allocated() == before - 512


def test_history_and_pools_are_empty(tmp_path):
    torch.cuda.memory._record_memory_history(max_entries=10)
    torch.cuda.memory._dump_snapshot(str(tmp_path / "snapshot.pickle"))
    torch.cuda.memory._record_memory_history(enabled=None)
    assert (tmp_path / "snapshot.pickle").exists()
    if hasattr(torch.cuda, "use_mem_pool"):
        with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
            assert torch.zeros(1, device="cuda").is_cuda
