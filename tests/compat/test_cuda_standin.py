"""Answers of the CUDA stand-in to a script."""

from __future__ import annotations

import concurrent.futures
import copy
import io
import threading

import numpy as np
import pytest
import torch

from tkdebug.compat import cuda_standin

pytestmark = pytest.mark.skipif(cuda_standin.cuda_usable(), reason="a real CUDA device is here")
CUDA = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def stand_in():
    with cuda_standin.install() as installed:
        torch.manual_seed(0)
        yield installed


@pytest.mark.parametrize("device", ["cuda", "cuda:0", 0, CUDA, torch.device("cuda")], ids=str)
def test_factories_place_on_every_spelling_of_the_device(device):
    made = [
        torch.empty(2, device=device),
        torch.tensor([1, 2], device=device),
        torch.arange(3, device=device),
        torch.randint(0, 2, (3,), device=device),
        torch.zeros(2).to(device),
        torch.zeros(2).to(device=device, dtype=torch.float16),
        torch.zeros(2).cuda(device),
        torch.ones_like(torch.zeros(2), device=device),
        torch.zeros(2).new_ones(3, device=device),
        torch.as_tensor([1.0], device=device),
    ]
    for tensor in made:
        assert tensor.is_cuda
        assert not tensor.is_cpu
        assert tensor.device == CUDA
        assert tensor.device.type == "cuda"
        assert tensor.get_device() == 0


def test_cpu_tensors_stay_on_the_cpu():
    x = torch.randn(4)
    assert x.device == torch.device("cpu")
    moved = x.cuda()
    assert not x.is_cuda
    assert moved.data_ptr() != x.data_ptr()
    assert (x + 1).device.type == "cpu"
    assert x.get_device() == -1
    assert x.cpu() is x


def test_results_of_operations_are_where_their_operands_are():
    x = torch.randn(4, 4, device="cuda")
    results = [x + 1, x.T, x[0], x @ x, torch.cat([x, x]), x.sum(), x.half(), x.view(16)]
    results += [x.to(torch.float64), x.new_empty(3), torch.empty_like(x), torch.where(x > 0, x, 0)]
    results += [
        *x.unbind(0),
        *torch.topk(x, 2),
        *x.max(dim=0),
        x.detach(),
        x.data,
        copy.deepcopy(x),
    ]
    assert all(r.is_cuda for r in results)
    assert not x.cpu().is_cuda
    assert not x.to("cpu").is_cuda
    assert not torch.zeros_like(x, device="cpu").is_cuda
    assert x.cuda() is x
    assert x.to("cuda") is x


def test_copies_between_devices_leave_each_tensor_where_it_is():
    host, device = torch.zeros(3), torch.ones(3, device="cuda")
    assert not host.copy_(device).is_cuda
    assert host.tolist() == [1, 1, 1]
    assert device.copy_(torch.full((3,), 2.0)).is_cuda
    out = torch.empty(3)
    torch.add(host, 1, out=out)
    assert not out.is_cuda
    assert not host.expand_as(device).is_cuda
    assert not host.is_cuda
    assert host.type_as(device).is_cuda
    assert host.to(device).is_cuda
    assert not device.to(host).is_cuda


def test_numpy_needs_the_cpu():
    x = torch.ones(2, device="cuda")
    with pytest.raises(TypeError, match=r"can't convert cuda:0 device type tensor to numpy"):
        x.numpy()
    with pytest.raises(TypeError, match="can't convert cuda:0"):
        np.asarray(x)
    assert x.cpu().numpy().tolist() == [1, 1]
    assert x.tolist() == [1, 1]


def test_arrays_are_copied_when_they_move_and_not_when_they_stay():
    array = np.zeros(3, dtype=np.float32)
    placed = torch.as_tensor(array, device="cuda")
    shared = torch.from_numpy(array)
    array[0] = 5
    assert placed.tolist() == [0, 0, 0]
    assert shared.tolist() == [5, 0, 0]
    assert placed.is_cuda
    assert not shared.is_cuda


def test_a_second_device_does_not_exist():
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.empty(2, device="cuda:1")
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.cuda.set_device(1)


def test_printing_names_the_device():
    assert repr(torch.ones(2, device="cuda")) == "tensor([1., 1.], device='cuda:0')"
    assert repr(torch.tensor(1.0, device="cuda")) == "tensor(1., device='cuda:0')"
    x = torch.ones(1, device="cuda", dtype=torch.float16, requires_grad=True)
    text = "tensor([1.], device='cuda:0', dtype=torch.float16, requires_grad=True)"
    assert f"{x}" == text
    assert f"{x.sum():.1f}" == "1.0"
    assert "device" not in repr(torch.ones(2))


def test_modules_move_with_their_parameters_and_buffers():
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    assert module.cuda() is module
    assert all(t.is_cuda for t in [*module.parameters(), *module.buffers()])
    assert isinstance(module[0].weight, torch.nn.Parameter)
    assert module(torch.randn(2, 4, device="cuda")).is_cuda
    assert not any(p.is_cuda for p in module.cpu().parameters())
    assert torch.nn.Linear(2, 2, device="cuda").weight.is_cuda
    assert module.to("cuda", torch.float64)[0].weight.dtype == torch.float64
    assert copy.deepcopy(module)[0].weight.is_cuda


def test_integers_are_counted_into_histograms():
    x = torch.tensor([0, 2, 2, 3, 9], device="cuda")
    counts = torch.histc(x, bins=4, min=0, max=3)
    assert counts.is_cuda
    assert (counts.dtype, counts.tolist()) == (torch.int64, [1, 0, 2, 1])
    assert x.int().histc(4, 0, 3).dtype == torch.int32
    out = torch.empty(0, dtype=torch.int64, device="cuda")
    assert torch.histc(input=x, bins=2, min=0, max=3, out=out) is out
    assert out.tolist() == [1, 3]
    assert torch.histc(x.float(), bins=4, min=0, max=3).tolist() == [1, 0, 2, 1]


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [
        (("cuda",), {}),
        ((), {"device": "cuda"}),
        ((), {"device": CUDA, "dtype": torch.float16, "non_blocking": True}),
        (("like",), {}),
        ((), {"tensor": "like"}),
    ],
    ids=str,
)
def test_modules_move_however_the_device_is_given(arguments, keywords):
    like = torch.ones(1, device="cuda")
    arguments = [like if value == "like" else value for value in arguments]
    keywords = {k: like if isinstance(v, str) and v == "like" else v for k, v in keywords.items()}
    module = torch.nn.BatchNorm1d(4).to(*arguments, **keywords)
    assert module.weight.is_cuda
    assert module.running_mean.is_cuda
    assert not module.to(device="cpu").weight.is_cuda


def test_training_step_keeps_gradients_and_parameters_on_the_device():
    module = torch.nn.Linear(4, 1).to("cuda")
    optimizer = torch.optim.AdamW(module.parameters())
    before = module.weight.detach().clone()
    module(torch.randn(8, 4, device="cuda")).square().mean().backward()
    assert module.weight.grad.is_cuda
    torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    assert module.weight.is_cuda
    assert not torch.equal(before, module.weight)


def test_custom_function_hears_the_device_in_backward():
    heard = []

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.empty_like(x).copy_(2 * x)

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            heard.extend([x.device, gradient.device, torch.empty(1, device=gradient.device).device])
            return 2 * gradient

    x = torch.randn(3, device="cuda", requires_grad=True)
    x.register_hook(lambda gradient: heard.append(gradient.device))
    Double.apply(x).sum().backward()
    assert heard == [CUDA] * 4
    assert x.grad.device == CUDA
    (gradient,) = torch.autograd.grad(Double.apply(x).sum(), x)
    assert gradient.is_cuda


def test_backward_of_a_cpu_graph_stays_on_the_cpu():
    x = torch.randn(3, requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad.device.type == "cpu"
    y = torch.randn(3, requires_grad=True)
    y.cuda().square().sum().backward()
    assert y.grad.device.type == "cpu"


@pytest.fixture
def no_default_device():
    """Without a default device afterwards: that of the CPU is refused beside tensors on cuda."""
    yield
    torch.set_default_device(None)


def test_default_device_is_honoured_and_restored(no_default_device):
    torch.set_default_device("cuda")
    assert torch.zeros(2).is_cuda
    assert torch.tensor([1]).is_cuda
    assert torch.nn.Linear(2, 2).weight.is_cuda
    assert torch.get_default_device() == CUDA
    assert (torch.arange(3) + 1).is_cuda
    assert not torch.zeros(2, device="cpu").is_cuda
    assert not torch.from_numpy(np.zeros(2)).is_cuda
    torch.set_default_device("cpu")
    assert not torch.zeros(2).is_cuda
    with torch.device("cuda"):
        assert torch.zeros(2).is_cuda
    assert not torch.zeros(2).is_cuda


def test_every_thread_hears_the_same():
    def work():
        x = torch.ones(2, device="cuda")
        return x.is_cuda, (x + 1).is_cuda, torch.ones(1).is_cuda

    results = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results.extend(pool.map(lambda _: work(), range(4)))
    assert results == [(True, True, False)] * 5


def test_default_generator_has_a_seed_and_an_offset():
    torch.manual_seed(11)
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    state = generator.get_state()
    seed, offset = state.view(torch.int64)
    assert (int(seed), int(offset)) == (11, 0)
    filled = torch.rand(3, device="cuda")
    offset += 8
    generator.set_state(state)
    assert generator.get_state().view(torch.int64).tolist() == [11, 8]
    assert not torch.equal(filled, torch.rand(3, device="cuda")), "filling went on"
    generator.set_state(torch.tensor([-3, 4]).view(torch.uint8))
    assert generator.get_state().view(torch.int64).tolist() == [-3, 4]
    # As model-parallel code does it.
    before = torch.cuda.get_rng_state()
    first = torch.rand(3, device="cuda")
    generator.set_state(before)
    assert torch.equal(first, torch.rand(3, device="cuda"))
    torch.manual_seed(11)
    assert generator.get_state().view(torch.int64).tolist() == [11, 0]
    assert torch.equal(filled, torch.rand(3, device="cuda"))


def test_generator_belongs_to_the_device_and_repeats():
    generator = torch.Generator(device="cuda").manual_seed(7)
    first = torch.rand(3, device="cuda", generator=generator)
    again = torch.Generator("cuda").manual_seed(7)
    assert torch.equal(first, torch.rand(3, device="cuda", generator=again))
    assert first.is_cuda
    assert generator.device == CUDA
    assert torch.Generator().device == torch.device("cpu")
    assert isinstance(generator, torch.Generator)


def test_seeds_and_states_repeat():
    torch.cuda.manual_seed_all(3)
    first = torch.rand(2, device="cuda")
    torch.cuda.manual_seed(3)
    state = torch.cuda.get_rng_state()
    assert torch.equal(first, torch.rand(2, device="cuda"))
    torch.cuda.set_rng_state(state)
    with torch.random.fork_rng():
        assert torch.equal(first, torch.rand(2, device="cuda"))
    assert torch.equal(first, torch.rand(2, device="cuda"))


def test_events_time_what_happens_between_them():
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.randn(256, 256, device="cuda").inverse()
    end.record()
    torch.cuda.synchronize()
    assert end.query()
    assert start.elapsed_time(end) > 0
    with pytest.raises(RuntimeError, match="must be recorded"):
        start.elapsed_time(torch.cuda.Event(enable_timing=True))
    with pytest.raises(RuntimeError, match="enable_timing=True"):
        start.elapsed_time(torch.cuda.Event())


def test_streams_nest_and_have_handles():
    default = torch.cuda.current_stream()
    stream = torch.cuda.Stream()
    assert default.cuda_stream == 0
    assert stream.cuda_stream != 0
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
        x = torch.ones(2, device="cuda")
        x.record_stream(stream)
        with torch.cuda.stream(None):
            assert torch.cuda.current_stream() == stream
    assert torch.cuda.current_stream() == default
    assert torch._C._cuda_getCurrentRawStream(0) == default.cuda_stream
    stream.wait_stream(default)
    stream.synchronize()
    assert stream.record_event().query()


def test_device_is_named_by_the_scope_of_a_tensor():
    scope = torch.cuda.device_of(torch.zeros(1, device="cuda"))
    assert torch.cuda.get_device_properties(scope).name == torch.cuda.get_device_name(scope)
    with pytest.raises(ValueError, match="Expected a cuda device"):
        torch.cuda.get_device_properties(torch.cuda.device_of(torch.zeros(1)))


def test_device_answers_as_an_h200():
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 1
    assert properties.multi_processor_count == 132
    assert (properties.major, properties.minor) == torch.cuda.get_device_capability() == (9, 0)
    assert torch.cuda.get_device_name(0) == properties.name == "NVIDIA H200"
    assert properties.shared_memory_per_block_optin == 232448
    assert torch.cuda.is_bf16_supported()
    assert properties.gcnArchName == properties.name
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total == properties.total_memory
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()
    with torch.cuda.device(0), torch.cuda.device_of(torch.ones(1, device="cuda")):
        torch.cuda.nvtx.range_push("x")
        torch.cuda.nvtx.range_pop()
    assert torch.version.cuda is not None


@pytest.mark.skipif(not hasattr(torch, "accelerator"), reason="torch without torch.accelerator")
def test_accelerator_is_cuda():
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    assert torch.accelerator.device_count() == 1
    torch.accelerator.synchronize()
    assert torch.accelerator.current_stream() == torch.cuda.current_stream()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x @ x,
        lambda x: torch.mm(x, x),
        lambda x: x.matmul(x),
        lambda x: torch.bmm(x[None], x[None]),
        lambda x: torch.addmm(x, x, x),
        lambda x: torch.nn.functional.linear(x, x, x[0]),
        lambda x: torch.einsum("ij,jk->ik", x, x),
        lambda x: torch.baddbmm(x[None], x[None], x[None]),
        lambda x: torch.nn.functional.scaled_dot_product_attention(
            x[None, None], x[None, None], x[None, None]
        ),
        lambda x: torch.nn.functional.conv1d(x[None], x[:, :, None]),
        lambda x: torch.nn.functional.layer_norm(x, (8,), x[0], x[1]),
        lambda x: torch.mm(x, x, out=torch.empty_like(x)),
        lambda x: x.clone().addmm_(x, x),
    ],
)
def test_halves_are_accumulated_in_fp32_and_rounded_once(function, dtype):
    x = torch.randn(8, 8, device="cuda").to(dtype)
    result = function(x)
    assert result.dtype == dtype
    assert result.is_cuda
    assert torch.equal(result, function(x.float()).to(dtype))


def test_mixed_dtypes_in_a_product_are_torchs_error():
    x = torch.randn(4, 4, device="cuda")
    with pytest.raises(RuntimeError, match="dtype"):
        x @ x.half()


def test_half_product_has_gradients():
    x = torch.randn(4, 4, device="cuda", dtype=torch.float16, requires_grad=True)
    (x @ x).sum().backward()
    assert x.grad.dtype == torch.float16
    assert x.grad.is_cuda


def test_autocast_casts_products():
    x = torch.randn(4, 4, device="cuda")
    rounded = x.half().float()
    exact = (rounded @ rounded).half()
    with torch.autocast("cuda"):
        assert torch.is_autocast_enabled("cuda")
        assert torch.is_autocast_enabled()
        assert (x @ x).dtype == torch.float16
        assert torch.equal(x @ x, exact)
        with torch.autocast("cuda", enabled=False):
            assert (x @ x).dtype == torch.float32
    with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
        assert torch.get_autocast_dtype("cuda") == torch.bfloat16
        assert (x @ x).dtype == torch.bfloat16
    assert not torch.is_autocast_enabled("cuda")
    assert not torch.is_autocast_enabled()
    assert torch.get_autocast_dtype("cuda") == torch.float16
    assert (x @ x).dtype == torch.float32


def test_autocast_leaves_alone_what_writes_to_a_given_tensor():
    x = torch.full((4, 4), 0.1, device="cuda")
    with torch.autocast("cuda"):
        out = torch.zeros(4, 4, device="cuda")
        assert torch.mm(x, x, out=out) is out
        total = torch.zeros(4, 4, device="cuda")
        assert total.addmm_(x, x) is total
    for result in (out, total):
        assert result.dtype == torch.float32
        torch.testing.assert_close(result, x @ x)


@pytest.mark.parametrize("is_autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_products_of_halves_are_added_to_fp32_in_fp32(dtype, is_autocast):
    x = torch.full((4, 4), 0.1, device="cuda", dtype=dtype)
    exact = x.float() @ x.float()
    total = torch.ones(4, 4, device="cuda")
    with torch.autocast("cuda", enabled=is_autocast):
        by_name = torch.addmm(input=total, mat1=x, mat2=x, out_dtype=torch.float32)
        product = torch.mm(x, x, out_dtype=torch.float32)
        assert torch.addmm(total, x, x, out_dtype=torch.float32, out=total) is total
    torch.testing.assert_close(product, exact, rtol=1e-6, atol=0)
    for result in (by_name, total):
        torch.testing.assert_close(result, exact + 1, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        (lambda x: torch.softmax(x, -1), torch.float32),
        (lambda x: torch.nn.functional.log_softmax(x, -1), torch.float32),
        (lambda x: x.exp(), torch.float32),
        (lambda x: x.sum(), torch.float32),
        (lambda x: torch.cumsum(x, 0, dtype=torch.float16), torch.float16),
        (lambda x: torch.nn.functional.layer_norm(x, (4,)), torch.float32),
        (lambda x: torch.nn.functional.mse_loss(x, x), torch.float32),
        (lambda x: torch.relu(x), torch.float16),
        (lambda x: x + x, torch.float16),
        (lambda x: torch.softmax(x.cpu(), -1), torch.float16),
    ],
)
def test_autocast_computes_some_functions_in_fp32(function, dtype):
    x = torch.randn(4, 4, device="cuda", dtype=torch.float16, requires_grad=True)
    with torch.autocast("cuda"):
        result = function(x)
    assert result.dtype == dtype
    result.sum().backward()
    assert x.grad.dtype == torch.float16
    assert function(x).dtype == torch.float16


def test_custom_forward_casts_under_autocast():
    class Identity(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float16)
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx, gradient):
            return gradient

    x = torch.randn(2, device="cuda", requires_grad=True)
    with torch.autocast("cuda"):
        y = Identity.apply(x)
    assert y.dtype == torch.float16
    y.float().sum().backward()
    assert x.grad.is_cuda


def test_gradient_scaler_steps():
    weight = torch.nn.Parameter(torch.ones(2, device="cuda"))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    torch.testing.assert_close(weight.detach(), torch.full((2,), 0.9, device="cuda"))


def test_pinned_memory_says_so():
    x = torch.empty(4, pin_memory=True)
    assert x.is_pinned()
    assert not x.is_cuda
    assert torch.ones(2).pin_memory().is_pinned()
    assert not torch.ones(2).is_pinned()
    assert x.cuda(non_blocking=True).is_cuda
    assert x.to("cuda", non_blocking=True).is_cuda
    dataset = torch.utils.data.TensorDataset(torch.arange(4.0))
    for (batch,) in torch.utils.data.DataLoader(dataset, batch_size=2, pin_memory=True):
        assert batch.is_pinned()


def test_checkpoints_remember_and_map_devices():
    file = io.BytesIO()
    torch.save({"on": torch.ones(2, device="cuda"), "off": torch.ones(2)}, file)

    def load(**options):
        file.seek(0)
        loaded = torch.load(file, **options)
        return loaded["on"].is_cuda, loaded["off"].is_cuda

    assert load() == (True, False)
    assert load(map_location="cpu") == (False, False)
    assert load(map_location="cuda") == (True, True)
    assert load(map_location=torch.device("cuda", 0)) == (True, True)


def test_legacy_types_are_known():
    x = torch.cuda.FloatTensor(2, 3)
    assert x.is_cuda
    assert isinstance(x, torch.cuda.FloatTensor)
    assert not isinstance(torch.ones(2), torch.cuda.FloatTensor)
    assert x.type() == "torch.cuda.FloatTensor"
    assert torch.ones(2).type("torch.cuda.HalfTensor").dtype == torch.float16
    assert torch.ones(2).type(torch.cuda.HalfTensor).is_cuda
    assert not x.type("torch.FloatTensor").is_cuda


def test_transforms_and_checkpointing_work():
    x = torch.randn(3, 2, device="cuda")
    assert torch.func.vmap(lambda row: row * 2)(x).is_cuda
    assert torch.func.grad(lambda v: (v * v).sum())(x).is_cuda
    y = x.clone().requires_grad_()
    torch.utils.checkpoint.checkpoint(lambda v: v.sin().sum(), y, use_reentrant=False).backward()
    assert y.grad.is_cuda


def test_tensors_are_on_the_device_to_code_below_torch_functions():
    x = torch.ones(2, device="cuda")
    with torch._C.DisableTorchFunction():
        assert x.device == CUDA
        assert (x + 1).is_cuda
        with pytest.raises(TypeError, match="can't convert cuda:0"):
            x.numpy()


def test_memory_that_is_freed_is_of_no_device():
    for _ in range(50):
        x = torch.ones(1000, device="cuda")
        del x
        assert not torch.ones(1000).is_cuda


def test_saved_tensor_hooks_are_the_scripts_own_code():
    x = torch.randn(3, device="cuda", requires_grad=True)
    heard = []

    def pack(tensor):
        heard.append(tensor.device)
        return tensor.cpu()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed.cuda()):
        x.sin().sum().backward()
    assert heard == [CUDA]
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        x.cos().sum().backward()
    assert x.grad.is_cuda


def test_custom_operators_see_their_tensors_on_the_device():
    heard = []

    @torch.library.custom_op("tkdebug_test::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        heard.append((x.device, torch.empty_like(x).device))
        return x * 2

    made = doubled(torch.ones(3, device="cuda"))
    assert made.is_cuda
    assert heard == [(CUDA, CUDA)]
    cpu = torch.device("cpu")
    assert doubled(torch.ones(3)).device == cpu
    assert heard[1:] == [(cpu, cpu)]


def test_custom_operators_run_the_kernel_of_their_tensors_device():
    @torch.library.custom_op("tkdebug_test::placed", mutates_args=(), device_types="cuda")
    def placed(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    assert placed(torch.zeros(2, device="cuda")).tolist() == [1, 1]
    with pytest.raises(NotImplementedError, match="'CPU' backend"):
        placed(torch.zeros(2))

    @placed.register_kernel("cpu")
    def _(x):
        return x + 2

    assert placed(torch.zeros(2)).tolist() == [2, 2]
    assert placed(torch.zeros(2, device="cuda")).tolist() == [1, 1]


def test_saved_code_of_torch_compile_allocates_on_the_device():
    made = torch._C._dynamo.guards._empty_strided_cuda((2, 3), (3, 1), torch.float16)
    assert made.device == CUDA
    assert (made.shape, made.stride(), made.dtype) == ((2, 3), (3, 1), torch.float16)
