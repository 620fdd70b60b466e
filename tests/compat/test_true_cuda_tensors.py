"""CUDA tensors of the stand-in are CUDA tensors to all of torch."""

import io

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from tkdebug.compat import cuda_standin
from tkdebug.compat.around_torch.unwritten_memory import mark_empties
from tkdebug.compat.cuda_standin import kernels, support
from tkdebug.errors import UnsupportedError

pytestmark = pytest.mark.skipif(cuda_standin.cuda_usable(), reason="a real CUDA device is here")


@pytest.fixture(autouse=True)
def stand_in():
    with cuda_standin.install() as installed:
        yield installed


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x, y: x + y, "found at least two devices, cuda:0 and cpu!"),
        (lambda x, y: torch.cat([x, y]), "same device"),
        (lambda x, y: torch.mm(x, y), r"in method wrapper_CUDA_mm\)"),
        (lambda x, y: torch.mm(y, x), r"in method wrapper_CUDA_mm\)"),
        (lambda x, y: x.index_select(0, y[0].long()), "method wrapper_CUDA__index_select"),
        (lambda x, y: y[x[0].long()], "indices should be either on cpu or on the same device"),
    ],
)
def test_tensors_on_two_devices_are_refused_as_by_a_gpu(function, text):
    x, y = torch.zeros(2, 2, device="cuda"), torch.zeros(2, 2)
    with pytest.raises(RuntimeError, match=text):
        function(x, y)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x, n: torch.addcmul(x, n, x, value=2), "for tensor1 argument is not supported"),
        (lambda x, n: torch.addcmul(n, x, x), "for self argument is not supported"),
        (lambda x, n: x.addcmul_(n, x), "for tensor1 argument is not supported"),
    ],
)
def test_numbers_of_the_host_are_refused_where_a_gpu_refuses_them(function, text):
    x, number = torch.ones(2, 2, device="cuda"), torch.tensor(2.0)
    with pytest.raises(RuntimeError, match=text):
        function(x, number)
    assert torch.addcmul(x, x, number).tolist() == [[3, 3], [3, 3]]


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.bool])
def test_reductions_of_types_that_a_gpu_has_none_of_are_refused(dtype):
    x, index = torch.ones(2, 2, device="cuda", dtype=dtype), torch.zeros(2, 2, device="cuda").long()
    with pytest.raises(NotImplementedError, match='gather_base_kernel_func" not impl'):
        x.scatter_(0, index, x.clone(), reduce="multiply")
    with pytest.raises(NotImplementedError, match='fill_base_kernel_reduce_multiply" not impl'):
        x.scatter_(0, index, 1.0, reduce="multiply")
    with pytest.raises(NotImplementedError, match="not implemented for"):
        x.scatter_reduce(0, index, x.clone(), "amax")
    assert x.scatter(0, index, x.clone(), reduce="add")[1].tolist() == [True, True]
    x = torch.full((2, 2), 3.0, device="cuda")
    assert x.scatter_reduce(0, index, x, "prod").tolist() == [[27, 27], [3, 3]]


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("include_last_offset", [False, True])
def test_bags_of_embeddings_have_the_shapes_of_a_gpus(mode, include_last_offset):
    indices, offsets = torch.tensor([1, 2, 4, 5, 4]), torch.tensor([0, 2, 2, 5])
    found = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        weight = torch.randn(6, 3).to(device).requires_grad_()
        given = weight, indices.to(device), offsets.to(device)
        options = {"mode": mode, "include_last_offset": include_last_offset}
        result = torch.nn.functional.embedding_bag(given[1], weight, given[2], **options)
        found.append((result.cpu(), *(x.cpu() for x in torch.autograd.grad(result.sum(), weight))))
    torch.testing.assert_close(*found)
    rest = False, ("sum", "mean", "max").index(mode), False, None, include_last_offset
    results = torch.ops.aten._embedding_bag(*given, *rest)
    on_meta = torch.ops.aten._embedding_bag(*(x.to("meta") for x in given), *rest)
    assert [x.shape for x in results] == [x.shape for x in on_meta]
    assert results[1].tolist() == [0, 0, 2, 2, 2]


def test_numbers_on_the_host_go_with_tensors_on_the_device():
    x = torch.ones(2, device="cuda", dtype=torch.float16)
    assert (x + torch.tensor(1.0)).tolist() == [2, 2]
    for result, dtype in (
        (x * 2.5, torch.float16),
        (x[0] * 2.5, torch.float16),
        (x.long() + 0.5, torch.float32),
        (x.int()[0] + 1, torch.int32),
    ):
        assert (result.dtype, result.is_cuda) == (dtype, True)


def test_generators_of_the_device_are_apart_from_the_cpus():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = torch.rand(100, device="cuda")
    assert torch.equal(torch.rand(3), expected)
    torch.nn.functional.dropout(first, 0.5)
    torch.cuda.manual_seed(5)
    assert torch.equal(torch.rand(100, device="cuda"), first)
    state = torch.cuda.get_rng_state()
    drawn = torch.randn(3, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.randn(3, device="cuda"), drawn)
    generator = torch.Generator("cuda")
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator"):
        torch.randn(4, generator=generator)
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator"):
        torch.randn(4, generator=torch.Generator(), device="cuda")


def test_dispatch_modes_and_traces_see_the_device():
    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(args[0].device.type)
            return func(*args, **(kwargs or {}))

    x = torch.ones(3, device="cuda", requires_grad=True)
    with Watch():
        x.sin().sum().backward()
    assert set(seen) == {"cuda"}
    traced = make_fx(lambda v: v + torch.ones(3, device=v.device))(x)
    assert "cuda" in traced.code
    assert torch.device(0) == x.device


def test_lists_are_made_of_views_and_seen_by_modes():
    x = torch.arange(6.0, device="cuda").view(2, 3).t()[1:]
    assert x.tolist() == [[1, 4], [2, 5]]
    assert torch.tensor([1 + 2j]).cuda().conj().imag.tolist() == [-2]
    assert torch.eye(2, device="cuda").to_sparse()._values().tolist() == [1, 1]
    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    with Mode():
        assert x.tolist() == [[1, 4], [2, 5]]
    assert torch.ops.aten._to_copy.default in seen


def test_numbers_are_read_by_the_tensors_own_type_and_view():
    one, z = torch.tensor([5.0], device="cuda"), torch.tensor(1 + 2j, device="cuda")
    assert (one.item(), one.view(torch.int32).item(), bool(one)) == (5.0, 0x40A00000, True)
    assert (z.conj().item(), z.conj().imag.item(), z.imag.item()) == (1 - 2j, -2, 2)
    assert torch.arange(3, device="cuda")[2].item() == 2
    with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        one[:0].item()


def test_tensors_of_the_host_are_sent_with_their_strides_and_views():
    images = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    for x in (images, images.mT, torch.ones(1).expand(4)):
        sent = x.cuda()
        assert sent.is_cuda
        assert sent.stride() == x.clone().stride()
        assert torch.equal(sent.cpu(), x)
    sent = torch.tensor([1 + 2j]).conj().cuda()
    assert (sent.is_conj(), sent.tolist()) == (False, [1 - 2j])
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        images.to("cuda:1")


def test_storages_are_on_the_device_and_move():
    storage = torch.ones(4, device="cuda").untyped_storage()
    assert storage.is_cuda
    assert torch.UntypedStorage(8, device="cuda").is_cuda
    assert not storage.cpu().is_cuda
    file = io.BytesIO()
    torch.save(torch.arange(3.0), file)
    file.seek(0)
    loaded = torch.load(file, map_location=lambda storage, location: storage.cuda())
    assert (loaded.device.type, loaded.tolist()) == ("cuda", [0, 1, 2])


def test_conjugate_and_negative_views_are_computed_with():
    x = torch.tensor([[1 + 2j, 3 - 1j]], device="cuda")
    assert (x.conj() @ x.T).tolist() == [[15]]
    assert (x.conj().imag + 0).tolist() == [[-2, 1]]
    assert x.conj().clone().cpu().tolist() == [[1 - 2j, 3 + 1j]]


@pytest.mark.parametrize("layer", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent_layers_are_trained_as_on_the_cpu(layer):
    of_cpu, of_cuda = layer(3, 4, 2, bidirectional=True), layer(3, 4, 2, bidirectional=True).cuda()
    of_cuda.load_state_dict(of_cpu.state_dict())
    x = torch.randn(5, 2, 3)
    for model, given in ((of_cpu, x), (of_cuda, x.cuda())):
        model(given)[0].square().sum().backward()
    for one, other in zip(of_cpu.parameters(), of_cuda.parameters(), strict=True):
        torch.testing.assert_close(other.grad.cpu(), one.grad)


def test_of_equal_values_the_largest_are_those_with_the_lowest_indices():
    torch.manual_seed(0)
    x = torch.randint(0, 9, (50, 40)).half()
    x[7] = torch.arange(40)
    for largest in (True, False):
        for dim in (0, 1):
            values, indices = x.cuda().topk(6, dim, largest=largest)
            expected = x.sort(stable=True, dim=dim, descending=largest)
            wanted = expected.indices.narrow(dim, 0, 6).sort(dim).values
            assert torch.equal(indices.sort(dim).values.cpu(), wanted)
            assert torch.equal(values.cpu(), expected.values.narrow(dim, 0, 6))
            assert torch.equal(x.gather(dim, indices.cpu()), values.cpu())
    assert x[0, 0].cuda().topk(1, 0).indices.item() == 0
    assert all(found.is_contiguous() for found in x.cuda().t().topk(6))


@pytest.mark.parametrize("largest", [True, False])
def test_rows_of_any_length_have_the_same_largest_elements(largest):
    short = torch.arange(40, device="cuda").float().remainder(7).view(2, 20)
    longer = torch.full((2, 2000), -1.0 if largest else 9.0, device="cuda")
    longer[:, :20] = short
    for found, wanted in zip(short.topk(9, -1, largest), longer.topk(9, -1, largest), strict=True):
        assert found.is_contiguous()
        assert found.sort().values.tolist() == wanted.sort().values.tolist()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.abs(),
        lambda x: x.logsumexp(-1),
        lambda x: x.repeat(2, 2),
        lambda x: torch.isclose(x, x + 1e-9),
        lambda x: torch._foreach_mul([x], [x])[0],
        lambda x: torch.nn.functional.pad(x, (1, 2), value=3.0),
    ],
)
def test_an_operator_made_of_others_is_one_step(function, monkeypatch):
    x = torch.linspace(-2, 2, 12).view(3, 4)
    on_device, placed = x.cuda(), []
    place = kernels.place
    monkeypatch.setattr(kernels, "place", lambda tensor: placed.append(tensor) or place(tensor))
    result = function(on_device)
    assert torch.equal(result.cpu(), function(x))
    assert len(placed) <= 2


def test_operators_that_fill_outputs_are_no_single_step():
    x = torch.tensor([3, 1, 2], device="cuda")
    out = torch.empty_like(x)
    assert torch.msort(x, out=out) is out
    assert out.tolist() == [1, 2, 3]


def test_lists_of_tensors_are_written_in_one_step():
    weights = [torch.ones(4, device="cuda"), torch.ones(2, 3, device="cuda").half().T]
    torch._foreach_add_(weights, [torch.ones_like(each) for each in weights], alpha=2)
    assert [each.unique().tolist() for each in weights] == [[3], [3]]
    with pytest.raises(RuntimeError, match="found at least two devices, cuda:0 and cpu!"):
        torch._foreach_add_(weights[:1], [torch.ones(4)])


def test_scalars_of_lists_of_tensors_are_on_the_host():
    weights = [torch.ones(2, device="cuda"), torch.ones(3, device="cuda")]
    torch._foreach_addcdiv_(weights, weights, weights, torch.tensor([1.0, 2.0]))
    assert [each.unique().tolist() for each in weights] == [[2], [3]]


def test_tensors_made_of_numbers_are_those_of_the_cpu():
    for make in (torch.kaiser_window, torch.hann_window, torch.eye, torch.fft.rfftfreq):
        made = make(5, device="cuda")
        assert made.is_cuda
        assert torch.equal(made.cpu(), make(5))
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.eye(2, device="cuda:1")


def test_parts_of_operators_are_refused_where_a_gpu_refuses_them(deterministic_algorithms):
    x, indices = torch.zeros(4, device="cuda"), torch.tensor([1], device="cuda")
    with pytest.raises(RuntimeError, match="put_ does not have a deterministic impl"):
        x.put(indices, torch.ones(1, device="cuda"))


def test_outputs_grow_and_stay_the_tensors_that_were_given():
    out = torch.empty(0, device="cuda")
    assert torch.add(torch.ones(3, device="cuda"), 1, out=out) is out
    assert out.tolist() == [2, 2, 2]
    out.resize_(5)[3:] = 7
    assert out.tolist() == [2, 2, 2, 7, 7]


def test_an_empty_output_grows_within_the_memory_that_it_is_a_view_of():
    x = torch.zeros(4, device="cuda")
    torch.arange(2, out=x[2:2])
    assert x.tolist() == [0, 0, 0, 1]
    torch.add(x, 1, out=x[3:3])
    assert x.tolist() == [0, 0, 0, 1]
    frequencies = torch.fft.fftfreq(4, device="cuda")
    assert frequencies.tolist() == torch.fft.fftfreq(4).tolist()


def test_packed_sequences_have_their_lengths_on_the_host():
    rows = torch.arange(12.0, device="cuda").view(2, 3, 2).requires_grad_()
    packed = torch.nn.utils.rnn.pack_padded_sequence(rows, torch.tensor([3, 1]), batch_first=True)
    assert (packed.data.device.type, packed.batch_sizes.device.type) == ("cuda", "cpu")
    packed.data.sum().backward()
    assert rows.grad[:, :, 0].tolist() == [[1, 1, 1], [1, 0, 0]]


def test_quantised_tensors_are_refused_in_a_line():
    x = torch.ones(3, device="cuda")
    with pytest.raises(NotImplementedError, match=r"quantised tensors .* take a GPU") as refusal:
        torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)
    assert "\n" not in str(refusal.value)


def test_a_model_is_trained_in_parallel_on_the_one_device():
    model = torch.nn.Linear(2, 2).cuda()
    x = torch.ones(3, 2, device="cuda", requires_grad=True)
    torch.nn.DataParallel(model)(x).sum().backward()
    assert torch.equal(x.grad, model.weight.sum(0).expand(3, 2))
    copies = torch.nn.parallel.replicate(model, [0])
    gathered = torch.nn.parallel.gather([copies[0](x)], 0)
    assert torch.equal(gathered, model(x))


def test_operators_of_the_cpu_alone_are_refused_by_name():
    with pytest.raises(NotImplementedError, match="aten::histogram"):
        torch.histogram(torch.ones(3, device="cuda"), 2)


def test_a_torch_that_is_not_known_is_refused_in_a_line(monkeypatch, tmp_path):
    monkeypatch.setattr(support._Checked, "is_so", False)
    monkeypatch.setattr(support, "_verdict_paths", lambda: [tmp_path / "torch" / "key"])
    monkeypatch.setattr(support, "_TEST", "raise SystemExit('its tables are others')")
    with pytest.raises(UnsupportedError, match=r"its tables are others.*install torch 2\.6"):
        support.check_installed_torch()
    monkeypatch.setattr(support, "_TEST", "")
    support.check_installed_torch()
    assert (tmp_path / "torch" / "key").read_text("utf-8") == "passed"


def test_storages_are_resized_and_freed():
    before = torch.cuda.memory_allocated()
    x = torch.arange(4.0, device="cuda")
    view, storage = x[1:3], x.untyped_storage()
    storage.resize_(0)
    assert (storage.nbytes(), torch.cuda.memory_allocated()) == (0, before)
    with pytest.raises(RuntimeError, match="resize"):
        x + 1
    torch.ops.inductor.resize_storage_bytes_(x, 16)
    x.copy_(torch.tensor([5.0, 6.0, 7.0, 8.0]))
    storage.resize_(64)
    x[2] = 1
    assert (x.tolist(), view.tolist(), storage.nbytes()) == ([5, 6, 1, 8], [6, 1], 64)


def attended(function, device, dtype, heads):
    """Return the result of attention and its gradients, of the same numbers on any device."""
    torch.manual_seed(0)
    given = [torch.randn(2, count, 40, 8) for count in (4, heads, heads)]
    given = [each.to(device, dtype).requires_grad_() for each in given]
    out = function(*given)
    out.float().sin().sum().backward()
    return [each.float().cpu() for each in (out.detach(), *(each.grad for each in given))]


ATEN = torch.ops.aten
FUSED = {
    "flash": lambda q, k, v, causal: ATEN._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)[
        0
    ],
    "efficient": lambda q, k, v, causal: ATEN._scaled_dot_product_efficient_attention(
        q, k, v, None, True, 0.0, causal
    )[0],
    "cudnn": lambda q, k, v, causal: ATEN._scaled_dot_product_cudnn_attention(
        q, k, v, None, True, 0.0, causal
    )[0],
    "flash of tokens": lambda q, k, v, causal: ATEN._flash_attention_forward(
        *(x.transpose(1, 2) for x in (q, k, v)), None, None, 40, 40, 0.0, causal, False
    )[0].transpose(1, 2),
}


@pytest.mark.parametrize("kind", FUSED)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("dtype", "heads"), [(torch.float32, 4), (torch.float16, 2)])
def test_fused_attention_that_is_called_directly_is_attention(kind, causal, dtype, heads):
    def plain(q, k, v):
        q, k, v = q.float(), k.float(), v.float()
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(q, k, v, is_causal=causal, enable_gqa=True).to(dtype)

    wanted = attended(plain, "cpu", dtype, heads)
    got = attended(lambda q, k, v: FUSED[kind](q, k, v, causal), "cuda", dtype, heads)
    tolerance = 1e-5 if dtype is torch.float32 else 4e-3
    torch.testing.assert_close(got, wanted, rtol=tolerance, atol=tolerance)


def test_fused_attention_gives_the_sums_of_its_scores():
    q = torch.randn(1, 2, 5, 4, device="cuda")
    sums = torch.logsumexp(q @ q.transpose(-1, -2) * 0.5, -1)
    torch.testing.assert_close(ATEN._scaled_dot_product_flash_attention(q, q, q)[1], sums)
    padded = ATEN._scaled_dot_product_efficient_attention(q, q, q, None, True)[1]
    assert padded.shape == (1, 2, 32)
    torch.testing.assert_close(padded[..., :5], sums)
    with pytest.raises(NotImplementedError, match="dropout takes a GPU"):
        ATEN._scaled_dot_product_flash_attention(q, q, q, 0.5)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("function", [torch.fft.fft, torch.fft.rfft, torch.fft.ifft2])
def test_transforms_of_halves_are_computed_in_fp32(function):
    x = torch.randn(4, 8).half()
    y = x.cuda().requires_grad_()
    wanted = function(x.float())
    got = function(y)
    assert got.dtype is torch.complex32
    torch.testing.assert_close(got.cpu().to(torch.complex64), wanted, rtol=4e-3, atol=4e-3)
    got.real.sum().backward()
    wide = x.float().requires_grad_()
    function(wide).real.sum().backward()
    torch.testing.assert_close(y.grad.cpu().float(), wide.grad, rtol=4e-3, atol=4e-3)


def test_gradients_of_softmax_have_the_type_of_a_gpus():
    gradient = torch.ops.aten._softmax_backward_data
    x = torch.rand(2, 3, device="cuda")
    assert gradient(x, x, 1, torch.float16).dtype is torch.float16
    assert gradient(x.half(), x.half(), 1, torch.float32).dtype is torch.float16


def test_matrix_exponentials_of_halves_are_computed_in_fp32():
    x = torch.eye(5, dtype=torch.bfloat16) * 8 + 1
    wanted = torch.linalg.matrix_exp(x.float()).bfloat16()
    assert torch.equal(torch.linalg.matrix_exp(x.cuda()).cpu(), wanted)


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_sums_of_sparse_products_are_refused_as_by_a_gpu():
    x = torch.eye(3, device="cuda").to_sparse_csr()
    with pytest.raises(NotImplementedError, match="_sparse_mm_reduce_impl"):
        torch.sparse.mm(x, torch.ones(3, 3, device="cuda"), "sum")


def test_copies_to_the_host_have_memory_of_their_own():
    x = torch.arange(6.0, device="cuda").view(2, 3)
    for copy in (x.cpu(), x.t().cpu(), x[:, 1:].cpu()):
        copy += 1
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert x.t().cpu().stride() == torch.arange(6.0).view(2, 3).t().clone().stride()
    flipped = torch.tensor([1 + 2j], device="cuda").conj()
    assert flipped.cpu().resolve_conj().tolist() == [1 - 2j]
    y = x.clone().requires_grad_()
    (y.cpu() * 2).sum().backward()
    assert y.grad.tolist() == [[2, 2, 2], [2, 2, 2]]


@pytest.fixture
def deterministic_algorithms():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    ("function", "called"),
    [
        (lambda x: x.median(0), "median CUDA with indices output"),
        (lambda x: torch.histc(x), "_histc_cuda with floating point input"),
        (lambda x: torch.bincount(x.long(), x), "_bincount_cuda"),
        (lambda x: x.clone().put_(x.long(), x, accumulate=True), "put_"),
        (
            lambda x: torch.nn.ReflectionPad1d(1)(x[None].requires_grad_()).sum().backward(),
            "reflection_pad1d_backward_out_cuda",
        ),
        (
            lambda x: (
                torch.nn.EmbeddingBag(3, 2, mode="max", device="cuda")(x.long()[None])
                .sum()
                .backward()
            ),
            "embedding_bag_backward_cuda_max",
        ),
    ],
)
def test_operators_that_are_not_deterministic_on_a_gpu_are_refused(
    deterministic_algorithms, function, called
):
    x = torch.zeros(3, device="cuda")
    with pytest.raises(RuntimeError, match=f"{called} does not have a deterministic impl"):
        function(x)
    torch.use_deterministic_algorithms(True, warn_only=True)
    with pytest.warns(UserWarning, match=f"{called} does not have a deterministic impl"):
        function(x)


def test_operators_that_are_deterministic_on_a_gpu_are_not_refused(deterministic_algorithms):
    x = torch.arange(3.0, device="cuda")
    assert (x.median().item(), torch.bincount(x.long()).tolist()) == (1, [1, 1, 1])
    assert torch.histc(x.long(), 3).tolist() == [1, 1, 1]


def test_memory_that_grows_is_filled_for_deterministic_programs(deterministic_algorithms):
    x = torch.ones(2, device="cuda").resize_(4)
    assert x.isnan().tolist() == [False, False, True, True]
    y = torch.ones(2, dtype=torch.int8, device="cuda").resize_(3)
    assert y.tolist() == [1, 1, 127]


@pytest.fixture
def synchronizing_is_an_error():
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


X, MASK = torch.arange(4.0), torch.tensor([True, False, True, False])
WAITING = {
    "item": lambda x, mask: x[0].item(),
    "condition": lambda x, mask: bool(x[0]),
    "to the host": lambda x, mask: x.cpu(),
    "from the host": lambda x, mask: x.copy_(X),
    "count": lambda x, mask: x.nonzero(),
    "masked": lambda x, mask: x[mask],
    "indices of the host": lambda x, mask: x[torch.tensor([1])],
    "masked store": lambda x, mask: x.index_put_((mask,), x[0]),
    "repeat": lambda x, mask: torch.repeat_interleave(x, mask.long()),
}
NOT_WAITING = {
    "kernel": lambda x, mask: x + 1,
    "indices": lambda x, mask: x[mask.long()],
    "mask of the host": lambda x, mask: x[MASK],
    "number": lambda x, mask: x.index_put_((mask,), torch.tensor(1.0)),
    "repeat of a known size": lambda x, mask: torch.repeat_interleave(
        x, mask.long(), output_size=2
    ),
    "asynchronous": lambda x, mask: x.copy_(X.pin_memory(), non_blocking=True),
}


@pytest.mark.parametrize("name", WAITING)
def test_what_waits_for_a_gpu_is_reported_where_that_is_asked_for(name, request):
    x, mask = X.cuda(), MASK.cuda()
    request.getfixturevalue("synchronizing_is_an_error")
    with pytest.raises(RuntimeError, match="called a synchronizing CUDA operation"):
        WAITING[name](x, mask)
    torch.cuda.set_sync_debug_mode("warn")
    assert torch.cuda.get_sync_debug_mode() == 1
    with pytest.warns(UserWarning, match="called a synchronizing CUDA operation"):
        WAITING[name](x, mask)


@pytest.mark.parametrize("name", NOT_WAITING)
def test_what_does_not_wait_for_a_gpu_is_not_reported(name, request):
    x, mask = X.cuda(), MASK.cuda()
    request.getfixturevalue("synchronizing_is_an_error")
    NOT_WAITING[name](x, mask)


def test_exponential_numbers_are_never_zero():
    x = torch.empty(1 << 20, dtype=torch.float16, device="cuda").exponential_()
    assert x.min() > 0
    assert x.exponential_(float("inf")).max() == 0


def test_numbers_are_copied_to_tensors():
    x = torch.zeros(2, device="cuda")
    assert x.copy_(2.5).tolist() == [2.5, 2.5]
    assert torch._lazy_clone(x).tolist() == [2.5, 2.5]


def test_memory_that_is_filled_for_deterministic_programs_is_not_marked(deterministic_algorithms):
    stop = mark_empties()
    try:
        for device in ("cpu", "cuda"):
            assert torch.empty(2, dtype=torch.int64, device=device).tolist() == [2**63 - 1] * 2
    finally:
        stop()
