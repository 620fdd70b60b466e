import gc
import sys
import weakref

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nested import nested_tensor
from torch.utils._python_dispatch import TorchDispatchMode

import tkdebug
import tkdebug.language as tl
from tkdebug.errors import CompileError, LaunchError, UnsupportedError, UsageError
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.knobs import scope
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.errors import GlobalChangedError

FACTOR = tl.constexpr(3)


@tkdebug.jit
def twice(v):
    return v * 2


@tkdebug.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(out_ptr + offs, twice(tl.load(x_ptr + offs, mask=mask)) * FACTOR, mask=mask)


@tkdebug.jit
def choose(x_ptr, pair, flag, combine: tl.constexpr, name: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    value = combine(tl.load(x_ptr + offs)) + pair[0] * pair[1][0]
    if name == "add":
        value += flag
    tl.store(x_ptr + offs, value)


@tkdebug.jit
def wrong(x_ptr):
    tl.store(x_ptr, undefined_name)  # noqa: F821


@pytest.fixture
def hook():
    added = []

    def add(**callbacks):
        added.append(Hook(**callbacks))
        HOOKS.add(added[-1])

    yield add
    for one in added:
        HOOKS.remove(one)


def run_scale(n=100, **options):
    x, out = torch.arange(n, dtype=torch.float32), torch.zeros(n)
    kernel = scale[lambda meta: (tkdebug.cdiv(n, meta["BLOCK"]),)](x, out, n, BLOCK=32, **options)
    return kernel, x, out


def test_launch_computes():
    kernel, x, out = run_scale()
    assert torch.equal(out, x * 6)
    assert "tt.func @scale" in kernel.asm["ttir"]


def test_a_launch_keeps_nothing_alive_for_the_garbage_collector():
    def machinery():
        kinds = ("Evaluator", "Emitter", "Visitor", "Buffer")
        return [found for found in gc.get_objects() if type(found).__name__ in kinds]

    gc.collect()
    before = machinery()
    gc.disable()
    try:
        _, x, out = run_scale(n=99)
        run_scale(n=99)
        tensors = [weakref.ref(tensor) for tensor in (x, out)]
        del x, out
        assert [tensor() for tensor in tensors] == [None, None]
        assert machinery() == before
    finally:
        gc.enable()


def test_small_launches_compute_on_one_thread_and_set_the_number_back(monkeypatch):
    seen = []
    run_kernel = Evaluator.run_kernel

    def noting(evaluator, function, arguments):
        seen.append(torch.get_num_threads())
        run_kernel(evaluator, function, arguments)

    monkeypatch.setattr(Evaluator, "run_kernel", noting)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        run_scale(n=100)
        run_scale(n=100_000)
        assert seen == [1, 3]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@tkdebug.jit
def product(a_ptr, b_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    c = tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at), input_precision="ieee")
    tl.store(out_ptr + at, c)


class Heard(TorchDispatchMode):
    """Counts what torch computes."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


def test_what_a_script_sets_up_in_torch_does_not_reach_the_interpreter():
    a, b, out = torch.randn(16, 16), torch.randn(16, 16), torch.zeros(16, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16), Heard() as heard:
        product.interpret[(1,)](a, b, out, N=16)
        assert heard.count == 0
        assert (a @ b).dtype == torch.bfloat16
    torch.testing.assert_close(out, a @ b)


def test_compiled_kernel_launches_again():
    kernel, x, _ = run_scale()
    again = torch.zeros(100)
    kernel[(4, 1, 1)](x, again, 100, 32)
    assert torch.equal(again, x * 6)


def test_tuples_functions_strings_and_scalars_as_arguments():
    x = torch.ones(16)
    choose[(1,)](x, (2.5, (4, None)), True, twice, "add", BLOCK=16)
    assert torch.equal(x, torch.full((16,), 13.0))


def test_reinterpreted_tensor_as_argument():
    x = torch.zeros(64, dtype=torch.int32)
    scale[(2,)](
        torch.ones(64), tkdebug.reinterpret(x, torch.float32), 64, BLOCK=32
    )  # torch.float32 has the width of int32
    assert torch.equal(x.view(torch.float32), torch.full((64,), 6.0))


def test_changed_global_is_refused(monkeypatch):
    run_scale()
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", tl.constexpr(4))
    with pytest.raises(GlobalChangedError, match="global variable `FACTOR` has changed") as caught:
        run_scale()
    assert isinstance(caught.value, RuntimeError)


def test_equal_global_is_not_a_change(monkeypatch):
    before, _, _ = run_scale()
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", tl.constexpr(3))
    after, _, _ = run_scale()
    assert after is before


def test_rebound_device_function_is_compiled_anew(monkeypatch):
    before, _, _ = run_scale()

    @tkdebug.jit
    def thrice(v):
        return v * 3

    monkeypatch.setattr(sys.modules[__name__], "twice", thrice)
    kernel, x, out = run_scale()
    assert torch.equal(out, x * 9)
    assert kernel.hash != before.hash


def test_compiled_event_has_stages_and_lines(hook):
    events = []
    hook(compiled=events.append)
    scale.hash = None
    scale.kernels.clear()
    kernel, _, _ = run_scale()
    (event,) = events
    assert event.hash == kernel.hash
    assert event.name == "scale"
    assert event.signature == kernel.src.describe()
    assert event.file == __file__
    assert event.source.splitlines()[1].startswith("def scale(")
    assert "tt.func @scale" in event.artifacts["tile-ir"]
    assert any(stage.startswith("tile-ir after ") for stage in event.artifacts)
    assert event.compile_ns > 0
    lines = {frames[0].line for frames in event.op_lines["tile-ir"].values()}
    assert lines <= set(range(event.line, event.line + len(event.source.splitlines())))
    run_scale()
    assert len(events) == 1


def test_compile_error_is_a_fault_too(hook):
    faults = []
    hook(fault=faults.append)
    with pytest.raises(CompileError, match="undefined_name") as caught:
        wrong[(1,)](torch.zeros(1))
    (fault,) = faults
    assert fault.kind == "compile-error"
    assert fault.kernel == "wrong"
    assert fault.frames == caught.value.frames
    assert fault.line == wrong.starting_line_number + 2


def test_fault_carries_the_launch_id(hook):
    faults, records = [], []
    hook(fault=faults.append, enter=lambda kernel, record: records.append(record))
    x = torch.zeros(40)
    scale[(2,)](x, torch.zeros(40), 64, BLOCK=32)
    assert {fault.launch_id for fault in faults} == {records[0].id}
    assert {fault.tensor for fault in faults} == {"x_ptr", "out_ptr"}


def test_ir_override_option_is_refused():
    with pytest.raises(UnsupportedError, match="ir_override"):
        run_scale(ir_override="x.ttir")


def test_dump_writes_stages_and_override_replaces_them(tmp_path):
    with scope(dump_dir=tmp_path / "dump"):
        scale.kernels.clear()
        kernel, _, _ = run_scale()
    (folder,) = (tmp_path / "dump").iterdir()
    assert folder.name == f"scale-{kernel.hash[:16]}"
    assert (folder / "source.py").read_text().startswith("@tkdebug.jit")
    text = (folder / "tile-ir.mlir").read_text()
    (folder / "tile-ir.mlir").write_text(text.replace("3.0", "5.0"))
    assert "3.0" in text
    with scope(override_dir=tmp_path / "dump"):
        scale.kernels.clear()
        _, x, out = run_scale()
    scale.kernels.clear()
    assert torch.equal(out, x * 10)


def test_override_says_what_it_replaces(tmp_path, capsys):
    scale.kernels.clear()
    with scope(dump_dir=tmp_path):
        run_scale()
    scale.kernels.clear()
    with scope(override_dir=tmp_path):
        run_scale()
    scale.kernels.clear()
    assert "tile-ir.mlir takes the place of its stage" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["junk\n", "module {\n}\n", "tt.func(\n", ""])
def test_override_that_is_no_ir_says_so(tmp_path, text):
    scale.kernels.clear()
    with scope(dump_dir=tmp_path):
        run_scale()
    (path,) = tmp_path.glob("*/tile-ir.mlir")
    path.write_text(text)
    scale.kernels.clear()
    with scope(override_dir=tmp_path), pytest.raises(UsageError, match=r"tile-ir\.mlir: "):
        run_scale()


def test_override_of_no_directory_says_so(tmp_path):
    scale.kernels.clear()
    with scope(override_dir=tmp_path / "gone"), pytest.raises(UsageError, match="not a directory"):
        run_scale()


def test_dump_to_a_file_says_so(tmp_path):
    (tmp_path / "taken").write_text("")
    scale.kernels.clear()
    with scope(dump_dir=tmp_path / "taken"), pytest.raises(UsageError, match="TKDEBUG_DUMP"):
        run_scale()


def test_autotuned_kernel_computes(capsys):
    tuner = tkdebug.autotune([tkdebug.Config({"BLOCK": b}) for b in (16, 64)], key=["n"])(scale)
    x, out = torch.ones(50), torch.zeros(50)
    tuner[lambda meta: (tkdebug.cdiv(50, meta["BLOCK"]),)](x, out, 50)
    assert torch.equal(out, x * 6)
    assert "BLOCK: 16" in capsys.readouterr().err


def test_descriptor_argument():
    @tkdebug.jit
    def copy(source, target, BLOCK: tl.constexpr):
        row = tl.program_id(0) * BLOCK
        target.store([row, 0], source.load([row, 0]))

    x, out = torch.rand(8, 16), torch.zeros(8, 16)
    make = tkdebug.TensorDescriptor.from_tensor
    copy[(2,)](make(x, [4, 16]), make(out, [4, 16]), BLOCK=4)
    assert torch.equal(out, x)


def test_meta_tensor_is_refused_by_name():
    with pytest.raises(LaunchError, match="argument `out_ptr` is a meta tensor"):
        scale[(1,)](torch.zeros(8), torch.zeros(8, device="meta"), 8, BLOCK=32)


def fake():
    with FakeTensorMode():
        return torch.zeros(8)


def freed():
    x = torch.zeros(8)
    x.untyped_storage().resize_(16)
    return x


class Wrapper(torch.Tensor):
    """A tensor that stands for another and has no memory itself."""

    @staticmethod
    def __new__(cls, wrapped):
        return torch.Tensor._make_wrapper_subclass(cls, wrapped.shape, dtype=wrapped.dtype)

    def __init__(self, wrapped):
        self.wrapped = wrapped

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(func)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: torch.eye(8).to_sparse(), "layout torch.sparse_coo; pass .to_dense()"),
        (lambda: torch.eye(8).to_sparse_csr(), "layout torch.sparse_csr; pass .to_dense()"),
        (lambda: nested_tensor([torch.ones(3), torch.ones(4)]), "a nested tensor"),
        (lambda: nested_tensor([torch.ones(3)], layout=torch.jagged), "a nested tensor"),
        (fake, "a FakeTensor, which has no memory"),
        (lambda: Wrapper(torch.zeros(8)), "a tensor of class Wrapper without memory"),
        (torch.nn.UninitializedParameter, "a tensor of class UninitializedParameter without"),
        (freed, "spans 32 bytes of a storage that was resized to 16: its memory has been freed"),
    ],
)
def test_tensors_without_memory_of_their_own_are_refused_by_name(make, problem):
    launches = []
    # Hooks get the launch, too, with what can be said of the argument.
    hook = Hook(enter=lambda kernel, record: launches.append(record.arguments))
    HOOKS.add(hook)
    try:
        with pytest.raises(LaunchError) as caught:
            scale[(1,)](torch.zeros(8), make(), 8, BLOCK=32)
    finally:
        HOOKS.remove(hook)
    ((_, refused, *_),) = launches
    assert (refused.name, refused.value) == ("out_ptr", "a tensor of torch.float32")
    assert "kernel scale: argument `out_ptr` is " in str(caught.value)
    assert problem in str(caught.value)


def test_tensors_that_torch_batches_are_refused_by_name():
    with pytest.raises(LaunchError, match="argument `out_ptr` is a tensor without memory"):
        torch.vmap(lambda x: scale[(1,)](torch.zeros(8), x, 8, BLOCK=32))(torch.zeros(2, 8))


def test_ints_that_are_too_large_are_refused_by_name():
    with pytest.raises(LaunchError, match="argument `BLOCK`: an int of 332193 bits"):
        scale[(1,)](torch.zeros(8), torch.zeros(8), 8, BLOCK=10**100000)
    with pytest.raises(LaunchError, match="argument `n`: integer argument of 332193 bits"):
        scale[(1,)](torch.zeros(8), torch.zeros(8), 10**100000, BLOCK=32)
