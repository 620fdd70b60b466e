"""CUDA graphs of the stand-in: what a replay does again, and what a capture refuses."""

import warnings

import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.compat import cuda_standin
from tkdebug.errors import UnsupportedError
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.benchmark import testing
from tkdebug.runtime.launch.graph_capture import CaptureError, capture_in_force
from tkdebug.runtime.tune.autotune import Config, autotune

pytestmark = pytest.mark.skipif(cuda_standin.cuda_usable(), reason="a real CUDA device is here")


@tkdebug.jit
def scale(x, out, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) * factor, mask=mask)


@tkdebug.jit
def pick(table, index, out):
    row = tl.load(index)
    lanes = tl.arange(0, 4)
    tl.store(out + lanes, tl.load(table + row * 4 + lanes))


@tkdebug.jit
def count_up(counter):
    tl.store(counter, tl.load(counter) + 1)


@tkdebug.jit
def add_pair(given):
    lanes = tl.arange(0, 4)
    tl.store(given[1] + lanes, tl.load(given[0] + lanes) + given[2])


@tkdebug.jit
def shout(x):
    tl.device_print("x", tl.load(x))


@pytest.fixture(autouse=True)
def stand_in():
    with cuda_standin.install() as installed, tkdebug.mode("interpret"):
        torch.manual_seed(0)
        yield installed
        assert capture_in_force() is None


@pytest.fixture
def heard():
    """Faults and launches that hooks get."""
    faults, launches = [], []
    hook = Hook(enter=lambda kernel, record: launches.append(record), fault=faults.append)
    HOOKS.add(hook)
    yield faults, launches
    HOOKS.remove(hook)


def cuda(*values):
    return torch.tensor([*values], device="cuda")


def captured(work):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()
    return graph, result


def test_replay_computes_static_outputs_from_static_inputs():
    x, weight = torch.zeros(4, device="cuda"), torch.randn(4, 4, device="cuda")
    graph, y = captured(lambda: torch.softmax(x @ weight, 0))
    for _ in range(3):
        x.copy_(torch.randn(4))
        graph.replay()
        torch.testing.assert_close(y, torch.softmax(x @ weight, 0))
    assert y.is_cuda


def test_replay_launches_kernels_between_operations():
    x, out = torch.zeros(100, device="cuda"), torch.zeros(100, device="cuda")

    def work():
        shifted = x + 1
        scale[(2,)](shifted, out, 100, 3.0, BLOCK=64)
        return out.sum()

    graph, total = captured(work)
    x.copy_(torch.arange(100.0))
    graph.replay()
    assert total == (x + 1).sum() * 3
    torch.testing.assert_close(out, (x + 1) * 3)


def test_capture_leaves_memory_from_before_it_as_it_was():
    counter, total, cache = cuda(0), cuda(0.0), torch.zeros(3, 2, device="cuda")

    def work():
        count_up[(1,)](counter)
        total.add_(1)
        cache[1] = total

    graph, _ = captured(work)
    assert (counter.item(), total.item(), cache.sum().item()) == (0, 0, 0)
    graph.replay()
    graph.replay()
    assert (counter.item(), total.item()) == (2, 2)
    assert cache.tolist() == [[0, 0], [2, 2], [0, 0]]


def test_chain_in_place_and_views():
    x = torch.zeros(2, 3, device="cuda")

    def work():
        y = x.clone()
        rows = y.view(6)
        rows.mul_(2).add_(1)
        y.t()[0].neg_()
        torch.add(y, 1, out=y)
        return y, y[1]

    graph, (y, row) = captured(work)
    for fill in (1.0, 5.0):
        x.fill_(fill)
        graph.replay()
        assert y[:, 1:].eq(fill * 2 + 2).all()
        assert y[:, 0].eq(-fill * 2).all()
        assert row.tolist() == y[1].tolist()


def test_out_of_a_size_that_the_operation_gives():
    x, out = cuda(1.0, 2.0), torch.empty(0, device="cuda")
    graph, _ = captured(lambda: torch.mul(x, 2, out=out))
    x.fill_(7)
    graph.replay()
    assert out.tolist() == [14, 14]


def test_random_operations_draw_anew_and_begin_where_the_capture_did():
    x = torch.ones(64, device="cuda")
    torch.manual_seed(3)
    graph, (drawn, kept) = captured(lambda: (torch.randn(4, device="cuda"), x.bernoulli(0.5)))
    graph.replay()
    first, mask = drawn.clone(), kept.clone()
    graph.replay()
    assert not torch.equal(first, drawn)
    assert not torch.equal(mask, kept)
    torch.manual_seed(3)
    torch.testing.assert_close(torch.randn(4, device="cuda"), first)


def test_random_generator_of_the_script():
    generator = torch.Generator(device="cuda").manual_seed(1)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        drawn = torch.rand(4, device="cuda", generator=generator)
    graph.replay()
    first = drawn.clone()
    graph.replay()
    assert not torch.equal(first, drawn)
    torch.testing.assert_close(
        torch.rand(4, device="cuda", generator=generator.manual_seed(1)), first
    )


def test_decode_loop():
    """One step of greedy decoding as a graph: token, position and cache are static."""
    vocabulary, length, width = 11, 6, 8
    embedding = torch.randn(vocabulary, width, device="cuda")
    head = torch.randn(width, vocabulary, device="cuda")

    def step(token, position, cache):
        hidden = torch.empty(1, width, device="cuda")
        scale[(1,)](embedding[token], hidden, width, 0.5, BLOCK=8)
        cache.index_copy_(0, position, hidden)
        seen = torch.arange(length, device="cuda")[:, None] <= position
        scores = torch.where(seen, cache @ hidden.T, float("-inf")).softmax(0)
        logits = (scores.T @ cache) @ head
        token.copy_(logits.argmax(-1))
        position.add_(1)
        return token

    def fresh():
        return cuda(4), cuda(0), torch.zeros(length, width, device="cuda")

    state = fresh()
    expected = [step(*state).item() for _ in range(length)]
    token, position, cache = fresh()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step(token.clone(), position.clone(), cache.clone())
    torch.cuda.current_stream().wait_stream(stream)
    graph, _ = captured(lambda: step(token, position, cache))
    got = []
    for _ in range(length):
        graph.replay()
        got.append(token.item())
    assert got == expected
    assert position.item() == length


def test_out_of_bounds_in_a_replay_is_reported_at_its_line(heard):
    faults, launches = heard
    table, index = torch.randn(3, 4, device="cuda"), torch.zeros(1, dtype=torch.int64).cuda()
    out = torch.zeros(4, device="cuda")
    graph, _ = captured(lambda: pick[(1,)](table, index, out))
    graph.replay()
    assert faults == []
    index.fill_(5)
    graph.replay()
    (fault,) = faults
    assert (fault.kind, fault.tensor, fault.index, fault.count) == ("oob-load", "table", 20, 4)
    assert fault.line == pick.starting_line_number + 4
    assert [fault.launch_id] == [launches[-1].id]


def test_faults_of_what_only_a_capture_sees_are_not_reported(heard):
    faults, launches = heard
    table, out = torch.randn(3, 4, device="cuda"), torch.zeros(4, device="cuda")
    index = torch.full((1,), 77, device="cuda")
    graph, _ = captured(lambda: pick[(1,)](table, index, out))
    index.fill_(2)
    graph.replay()
    assert faults == []
    assert out.tolist() == table[2].tolist()
    assert len(launches) == 2


def test_device_print_prints_in_replays_only(capfd):
    x = cuda(3)
    graph, _ = captured(lambda: shout[(1,)](x))
    assert "x" not in capfd.readouterr().out
    graph.replay()
    assert "x: 3" in capfd.readouterr().out


def test_arguments_of_captured_launches_are_described_without_reading_them(heard):
    x, out = torch.ones(4, device="cuda"), torch.zeros(4, device="cuda")
    described = []
    hook = Hook(exit=lambda kernel, record: described.append(record.arguments))
    HOOKS.add(hook)
    try:
        graph, _ = captured(lambda: add_pair[(1,)]((x, out, 3)))
    finally:
        HOOKS.remove(hook)
    graph.replay()
    assert out.tolist() == [4] * 4
    assert [argument.value for argument in described[0]] == [
        "(a tensor of torch.float32, a tensor of torch.float32, 3)"
    ]


def test_host_work_of_a_capture_is_not_done_again():
    x, steps, host = cuda(1.0), [], torch.zeros(1)

    def work():
        steps.append(1)
        host.add_(1)
        return x * torch.tensor(2.0)

    graph, y = captured(work)
    graph.replay()
    graph.replay()
    assert len(steps) == 1
    assert host.item() == 1
    assert y.item() == 2


def test_a_number_in_host_memory_is_the_one_of_the_capture():
    x, factor = cuda(1.0), torch.tensor(2.0)
    graph, y = captured(lambda: x * factor)
    factor.fill_(50)
    graph.replay()
    assert y.item() == 2


def test_pinned_memory_is_copied_with_each_replay():
    host, x = torch.zeros(2).pin_memory(), torch.zeros(2, device="cuda")

    def work():
        x.copy_(host, non_blocking=True)
        return (x + 1).to("cpu", non_blocking=True)

    graph, back = captured(work)
    host.fill_(4)
    graph.replay()
    assert back.tolist() == [5, 5]
    assert not back.is_cuda


def test_whole_training_step():
    def model():
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))

    graphed, plain = model().cuda(), model().cuda()
    x, target = torch.randn(5, 4, device="cuda"), torch.randn(5, 1, device="cuda")

    def step(net, optimizer):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(net(x), target)
        loss.backward()
        optimizer.step()
        return loss

    optimizer = torch.optim.SGD(graphed.parameters(), lr=0.1)
    graph, loss = captured(lambda: step(graphed, optimizer))
    other = torch.optim.SGD(plain.parameters(), lr=0.1)
    for _ in range(3):
        x.copy_(torch.randn(5, 4))
        graph.replay()
        torch.testing.assert_close(loss, step(plain, other))
    torch.testing.assert_close(list(graphed.parameters()), list(plain.parameters()))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_batch_norm_counts_replays_only(mode):
    norm = torch.nn.BatchNorm1d(2).cuda()
    x = torch.randn(8, 2, device="cuda") + 3
    with mode():
        graph, y = captured(lambda: norm(x))
    assert norm.running_mean.tolist() == [0, 0]
    assert norm.num_batches_tracked.item() == 0
    graph.replay()
    torch.testing.assert_close(norm.running_mean, x.mean(0) * 0.1)
    torch.testing.assert_close(y.mean(0), torch.zeros(2, device="cuda"))


@pytest.mark.filterwarnings("ignore:PyTorch was compiled without cuDNN")
def test_recurrent_layer_with_gradients_enabled():
    layer = torch.nn.LSTM(4, 4).cuda()
    x = torch.randn(3, 2, 4, device="cuda")
    graph, (y, _) = captured(lambda: layer(x))
    x.fill_(0.5)
    graph.replay()
    torch.testing.assert_close(y, layer(x)[0])


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
def test_optimizer_counts_replays_only():
    weight = torch.ones(3, device="cuda", requires_grad=True)
    weight.grad = torch.ones_like(weight)
    with pytest.raises(RuntimeError, match="capturable is False"):
        captured(torch.optim.Adam([weight]).step)
    optimizer = torch.optim.Adam([weight], capturable=True)
    optimizer.step()
    graph, _ = captured(optimizer.step)
    graph.replay()
    graph.replay()
    assert optimizer.state[weight]["step"] == 3


def test_make_graphed_callables():
    layer = torch.nn.Linear(4, 3).cuda()
    plain = torch.nn.Linear(4, 3).cuda()
    plain.load_state_dict(layer.state_dict())
    graphed = torch.cuda.make_graphed_callables(layer, (torch.randn(2, 4, device="cuda"),))
    for _ in range(3):
        x = torch.randn(2, 4, device="cuda")
        for module in (graphed, plain):
            module.zero_grad(set_to_none=True)
            module(x).square().sum().backward()
        torch.testing.assert_close(layer.weight.grad, plain.weight.grad)
        torch.testing.assert_close(graphed(x), plain(x))


def test_inference_mode_and_autograd_take_no_note_of_a_replay():
    with torch.inference_mode():
        x = torch.ones(3, device="cuda")
        graph, y = captured(lambda: x * 2)
    graph.replay()
    weight = torch.ones(3, device="cuda", requires_grad=True)
    static = torch.zeros(3, device="cuda")
    graph, doubled = captured(lambda: static * 2)
    loss = (weight * doubled).sum()
    static.fill_(1)
    graph.replay()
    loss.backward()
    assert y.tolist() == weight.grad.tolist() == [2, 2, 2]


def test_custom_operator_launches_in_each_replay(heard):
    @torch.library.custom_op("tkdebug_graphs::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        scale[(1,)](x, out, x.numel(), 2.0, BLOCK=16)
        return out

    x = torch.zeros(4, device="cuda")
    graph, y = captured(lambda: twice(x) + 1)
    x.fill_(3)
    graph.replay()
    assert y.tolist() == [7, 7, 7, 7]
    assert len(heard[1]) == 2


def test_graph_within_a_graph_is_part_of_it():
    x = cuda(1.0)
    inner, y = captured(lambda: x + 1)
    outer, z = captured(lambda: (inner.replay(), y * 10)[1])
    x.fill_(4)
    assert y.item() == 2
    outer.replay()
    assert (y.item(), z.item()) == (5, 50)


def test_capture_by_hand_and_reset():
    x, graph = cuda(1.0), torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="replay without a preceding successful capture"):
        graph.replay()
    with pytest.raises(RuntimeError, match="captured on a non-default stream"):
        graph.capture_begin()
    for factor in (2, 3):
        with torch.cuda.stream(torch.cuda.Stream()):
            assert not torch.cuda.is_current_stream_capturing()
            graph.capture_begin(pool=torch.cuda.graph_pool_handle())
            assert torch.cuda.is_current_stream_capturing()
            assert torch.cuda.current_stream().is_capturing()
            y = x * factor
            graph.capture_end()
        x.fill_(5)
        graph.replay()
        assert y.item() == 5 * factor
        with (
            pytest.raises(RuntimeError, match="already owns a captured graph"),
            torch.cuda.graph(graph),
        ):
            pass
        graph.reset()
    with pytest.raises(RuntimeError, match="must end on the same stream"):
        graph.capture_end()


def test_pools_are_shared_by_name():
    x = cuda(1.0)
    first, _ = captured(lambda: x + 1)
    second = torch.cuda.CUDAGraph()
    with torch.cuda.graph(second, pool=first.pool(), stream=torch.cuda.Stream()):
        x + 2
    assert second.pool() == first.pool()
    assert torch.cuda.graph_pool_handle() != first.pool()


def test_empty_graph_is_warned_of():
    with pytest.warns(UserWarning, match="The CUDA Graph is empty"):
        captured(lambda: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        captured(lambda: torch.zeros(1, device="cuda") + 1)


def test_cuda_handles_are_refused_by_name():
    with pytest.raises(UnsupportedError, match=r"CUDAGraph\.debug_dump is not supported"):
        torch.cuda.CUDAGraph().debug_dump("graph.dot")


WAITING = {
    "item": lambda x: x.sum().item(),
    "bool": lambda x: bool(x.any()),
    "tolist": lambda x: x.tolist(),
    "print": lambda x: str(x),
    "cpu": lambda x: x.cpu(),
    "to host": lambda x: x.to("cpu"),
    "copy to host": lambda x: torch.zeros(3).copy_(x),
    "copy from host": lambda x: x.copy_(torch.zeros(3)),
    "to device": lambda x: torch.zeros(3).cuda(),
    "tensor": lambda x: torch.tensor([1.0], device="cuda"),
    "as_tensor": lambda x: torch.as_tensor([1.0], device="cuda"),
    "mask": lambda x: x[x > 0],
    "nonzero": lambda x: x.nonzero(),
    "unique": lambda x: x.unique(),
    "equal": lambda x: torch.equal(x, x),
    "synchronize": lambda x: torch.cuda.synchronize(),
    "stream": lambda x: torch.cuda.current_stream().synchronize(),
    "capture": lambda x: captured(lambda: x + 1),
    "do_bench": lambda x: testing.do_bench(lambda: x + 1),
}


@pytest.mark.parametrize("work", WAITING.values(), ids=WAITING.keys())
def test_capture_refuses_what_the_host_waits_for(work):
    x, graph = torch.ones(3, device="cuda"), torch.cuda.CUDAGraph()
    with (
        pytest.raises(CaptureError, match="not permitted when stream is capturing"),
        torch.cuda.graph(graph),
    ):
        work(x)
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    work(x)


def test_capture_with_a_swallowed_refusal_fails_at_its_end():
    x = cuda(1.0)

    def work():
        with pytest.raises(RuntimeError, match="not permitted"):
            x.item()

    with pytest.raises(RuntimeError, match="failed due to a previous error during capture"):
        captured(work)


ALLOWED = {
    "fill": lambda x: x.fill_(2.0),
    "set item": lambda x: x.__setitem__(0, 5.0),
    "mask fill": lambda x: x.__setitem__(x > 0, 0.0),
    "index": lambda x: x[torch.zeros(2, dtype=torch.int64, device="cuda")],
    "full": lambda x: torch.full((2,), 3.0, device="cuda"),
    "arange": lambda x: torch.arange(4, device="cuda") + x.numel(),
    "repeat": lambda x: x.repeat_interleave(x.long(), output_size=3),
    "one_hot": lambda x: torch.nn.functional.one_hot(x.long(), 4),
    "dropout": lambda x: torch.nn.functional.dropout(x),
    "topk": lambda x: x.topk(2),
    "multinomial": lambda x: torch.multinomial(x, 1),
    "host": lambda x: torch.zeros(2).sum().item(),
    "host tensor": lambda x: torch.tensor([1, 2]).tolist(),
    "shape": lambda x: int(x.numel() + x.stride(0)),
    "embedding": lambda x: torch.nn.functional.embedding(x.long(), x[:, None]),
    "clip": lambda x: _clip(x),
    "autocast": lambda x: _under_autocast(x),
    "event": lambda x: torch.cuda.Event().record(),
    "side stream": lambda x: _on_another_stream(x),
}


def _under_autocast(x):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return x[None] @ x[:, None]


def _clip(x):
    layer = torch.nn.Linear(3, 2, device="cuda")
    for foreach in (None, False, True):
        layer(x).sum().backward()
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 0.1, foreach=foreach)


def _on_another_stream(x):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x + 1
    torch.cuda.current_stream().wait_stream(side)
    return y


@pytest.mark.parametrize("name", ALLOWED)
def test_capture_allows_what_a_gpu_does(name):
    work = ALLOWED[name]
    x = torch.ones(3, device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph, found = captured(lambda: work(x))
        expected = work(torch.ones(3, device="cuda"))
    graph.replay()
    if name not in ("dropout", "multinomial", "event"):
        torch.testing.assert_close(found, expected)
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name != "clip":
            x = torch.ones(3, device="cuda")
            graph, _ = captured(lambda: work(x))
            graph.replay()


def test_events_recorded_in_a_capture_are_not_asked():
    event = torch.cuda.Event(enable_timing=True)
    captured(lambda: (torch.ones(1, device="cuda") + 1, event.record()))
    for ask in (event.synchronize, event.query, lambda: event.elapsed_time(event)):
        with pytest.raises(RuntimeError, match="last recorded in a capturing stream"):
            ask()
    event.record()
    event.synchronize()


def test_tuner_that_has_not_chosen_is_refused():
    @autotune(configs=[Config({"BLOCK": 16}), Config({"BLOCK": 32})], key=["n"])
    @tkdebug.jit
    def tuned(x, n, BLOCK: tl.constexpr):
        lanes = tl.arange(0, BLOCK)
        tl.store(x + lanes, 1.0, mask=lanes < n)

    x = torch.zeros(8, device="cuda")
    with pytest.raises(CaptureError, match="launch it once before the capture"):
        captured(lambda: tuned[(1,)](x, 8))
    tuned[(1,)](x, 8)
    graph, _ = captured(lambda: tuned[(1,)](x, 8))
    x.zero_()
    graph.replay()
    assert x.tolist() == [1] * 8


def test_step_that_fails_in_a_replay_says_where_it_was_captured():
    table, index = torch.randn(3, 4, device="cuda"), torch.zeros(1, dtype=torch.int64).cuda()
    graph, _ = captured(lambda: table.index_select(0, index))
    line = test_step_that_fails_in_a_replay_says_where_it_was_captured.__code__.co_firstlineno + 2
    index.fill_(9)
    with pytest.raises(CaptureError, match=rf"test_cuda_graphs\.py:{line}: aten\.index_select"):
        graph.replay()


def test_graphs_end_with_the_stand_in(stand_in):
    x = cuda(1.0)
    captured(lambda: x + 1)
    stand_in.uninstall()
    assert torch.cuda.CUDAGraph.__module__ == "torch.cuda.graphs"


def test_do_bench_cudagraph():
    x, out = torch.ones(8, device="cuda"), torch.zeros(8, device="cuda")
    ms = testing.do_bench_cudagraph(lambda: scale[(1,)](x, out, 8, 2.0, BLOCK=8), rep=1)
    assert ms > 0
    assert out.tolist() == [2] * 8
