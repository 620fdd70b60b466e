"""`triton.profiler`: what scripts that profile with Proton get."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from tkdebug import compat
from tkdebug.errors import CompileError, TkError, UnsupportedError
from tkdebug.records.hook_chain import HOOKS
from tkdebug.records.scopes import SCOPES

MODULES = """triton.profiler triton.profiler.profile triton.profiler.scope triton.profiler.state
triton.profiler.flags triton.profiler.context triton.profiler.data triton.profiler.mode
triton.profiler.specs triton.profiler.language triton.profiler.viewer triton.profiler.proton
triton.profiler.hooks triton.profiler.hooks.hook triton.profiler.hooks.launch
triton.profiler.hooks.instrumentation""".split()


@pytest.fixture
def proton(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with compat.install("interpret"):
        proton = importlib.import_module("triton.profiler")
        yield proton
        proton.finalize()
    assert not SCOPES.tracking
    assert SCOPES.current() is None


@pytest.fixture
def kernels(proton):
    """Two kernels, and functions that launch them."""
    import torch
    import triton
    import triton.language as tl

    def metadata(grid, metadata, args):
        n = args["n"]
        return {"name": f"add_{n}_{metadata.num_warps}", "flops32": 1.0 * n, "bytes": 8 * n}

    @triton.jit
    def copy(x, y, n, B: tl.constexpr):
        i = tl.program_id(0) * B + tl.arange(0, B)
        tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)

    @triton.jit(launch_metadata=metadata)
    def add(x, y, n, B: tl.constexpr):
        i = tl.program_id(0) * B + tl.arange(0, B)
        tl.store(y + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)

    x = torch.ones(100, device="cuda")
    return SimpleNamespace(
        copy=lambda: copy[(2,)](x, torch.empty_like(x), 100, 64),
        add=lambda: add[(2,)](x, torch.empty_like(x), 100, 64),
    )


def read(name="proton"):
    with open(f"{name}.hatchet", encoding="utf-8") as file:
        return json.load(file)


def shape(frame):
    """A tree as nested dicts of names; a kernel as how often it ran."""
    if "count" in frame["metrics"] and frame["metrics"]["count"]:
        return frame["metrics"]["count"]
    return {child["frame"]["name"]: shape(child) for child in frame["children"]}


def find(frame, name):
    found = [frame] if frame["frame"]["name"] == name else []
    for child in frame["children"]:
        found += find(child, name)
    return found


def test_modules_have_their_names(proton):
    for name in MODULES:
        module = importlib.import_module(name)
        assert importlib.util.find_spec(name) is not None
        for public in getattr(module, "__all__", ()):
            assert getattr(module, public) is not None
    assert callable(proton.scope)
    assert callable(proton.profile)
    assert callable(proton.state)


def test_launches_are_summed_under_their_scopes(proton, kernels):
    proton.start("p")

    @proton.scope("decorated")
    def decorated():
        kernels.copy()

    with proton.scope("outer"):
        with proton.scope("inner"):
            kernels.copy()
            kernels.copy()
            kernels.add()
        decorated()
    proton.enter_scope("late")
    kernels.add()
    proton.exit_scope("late")
    kernels.copy()
    proton.finalize()
    tree, devices = read("p")
    assert shape(tree) == {
        "copy": 1,
        "late": {"add": 1},
        "outer": {"decorated": {"copy": 1}, "inner": {"add": 1, "copy": 2}},
    }
    assert tree["frame"] == {"name": "ROOT", "type": "function"}
    assert tree["metrics"] == {"count": 0, "time (ns)": 0}
    (first, *_) = find(tree, "copy")
    assert first["metrics"]["time (ns)"] > 0
    # Interpreted: a wall time of the CPU, and no GPU's.
    assert (first["metrics"]["device_type"], first["metrics"]["device_id"]) == ("CPU", "0")
    assert devices["CPU"]["0"]["arch"] == "interpret"


def test_without_a_session_scopes_are_nothing_and_launches_have_no_hook(proton, kernels):
    assert not HOOKS.launch
    with proton.scope("unseen", {"a": 1.0}) as scope:
        kernels.copy()
    assert scope.id is None
    assert proton.enter_scope("unseen") is None
    assert proton.exit_scope("other") is None
    assert not SCOPES.tracking
    assert proton.context.depth() is None
    proton.finalize()


def test_deactivated_session_hears_nothing(proton, kernels):
    session = proton.start("p")
    with proton.scope("before"):
        kernels.copy()
    proton.deactivate(session)
    assert not HOOKS.launch
    with proton.scope("between", {"a": 1.0}):
        kernels.copy()
    proton.deactivate(session)
    proton.activate(session)
    proton.activate()
    with proton.scope("after"):
        kernels.copy()
    proton.finalize(session)
    assert shape(read("p")[0]) == {"before": {"copy": 1}, "after": {"copy": 1}}


def test_scopes_across_activation_stay_balanced(proton, kernels):
    session = proton.start("p")
    proton.deactivate(session)
    proton.enter_scope("unheard")
    proton.activate(session)
    proton.enter_scope("heard")
    kernels.copy()
    proton.exit_scope("heard")
    proton.exit_scope("unheard")
    with pytest.raises(TkError, match="no scope is in force"):
        proton.exit_scope()
    proton.finalize()
    assert shape(read("p")[0]) == {"heard": {"copy": 1}}


def test_two_sessions_have_their_own_launches(proton, kernels):
    first = proton.start("first")
    with proton.scope("both"):
        second = proton.start("second")
        kernels.copy()
    assert second == first + 1
    proton.finalize(first)
    kernels.add()
    assert proton.start("second") == second
    proton.finalize()
    assert shape(read("first")[0]) == {"both": {"copy": 1}}
    # A scope that was entered before the session began is none of its own.
    assert shape(read("second")[0]) == {"copy": 1, "add": 1}


def test_metrics_add_up_by_kind(proton):
    import torch

    proton.start("p")
    for part in (1, 2):
        with proton.scope("s", {"sum": part, "own (exc)": 0.5, "last (pty)": part, "v": [1, part]}):
            pass
        proton.enter_scope("s", metrics={"t": torch.tensor(1.5, device="cuda")})
        proton.exit_scope(metrics={"at exit": 2})
    proton.finalize()
    tree, _ = read("p")
    metrics = tree["children"][0]["metrics"]
    assert metrics == {"sum": 3, "own": 1.0, "last": 2, "v": [2, 3], "t": 3.0, "at exit": 4}
    assert tree["metrics"] == {"sum": 0, "last": 0, "t": 0, "at exit": 0}


def test_tensor_metric_is_what_it_was_when_given(proton):
    import torch

    value = torch.tensor([1.0, 2.0], device="cuda")
    proton.start("p")
    with proton.scope("s", {"t": value}):
        value.zero_()
    proton.finalize()
    assert read("p")[0]["children"][0]["metrics"] == {"t": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (1, r"Metric value type mismatch for valueId 0 \(a\): current=double, new=uint64_t"),
        ("x", "current=double, new=std::string"),
        (object(), "metric 'a': got <object"),
    ],
)
def test_metric_of_another_type_is_refused_and_its_scope_not_entered(proton, second, message):
    session = proton.start("p")
    with proton.scope("s", {"a": 1.0}):
        pass
    with pytest.raises(RuntimeError, match=message), proton.scope("s", {"a": second}):
        pass
    assert proton.context.depth(session) == 0


def test_launch_metadata_names_and_measures_launches(proton, kernels):
    proton.start("p", hook="triton")
    with proton.scope("s"):
        kernels.add()
        kernels.add()
        kernels.copy()
    proton.finalize()
    kernels.add()
    (frame,) = find(read("p")[0], "add_100_4")
    assert frame["metrics"]["flops32"] == 200.0
    assert frame["metrics"]["bytes"] == 1600
    assert frame["metrics"]["count"] == 2
    assert shape(read("p")[0]) == {"s": {"add_100_4": 2, "copy": 1}}


def test_own_hook_is_called_around_launches_while_its_session_is_active(proton, kernels):
    from triton.profiler.hooks.hook import Hook, HookManager

    calls = []

    class Mine(Hook):
        def enter(self, metadata):
            calls.append(("enter", metadata.get()["name"]))

        def exit(self, metadata):
            calls.append(("exit", metadata.get()["name"]))

    session = proton.start("p", hook=Mine())
    kernels.copy()
    proton.deactivate(session)
    kernels.copy()
    assert calls == [("enter", "copy"), ("exit", "copy")]
    proton.finalize()
    assert HookManager.active_hooks == []
    assert not HOOKS.launch


def test_launch_that_fails_is_not_counted(proton, kernels, monkeypatch):
    proton.start("p")
    kernels.copy()
    monkeypatch.setattr("tkdebug.interpreter.launch.run_module", lambda *a, **k: 1 / 0)
    with contextlib.suppress(ZeroDivisionError):
        kernels.copy()
    proton.finalize()
    assert shape(read("p")[0]) == {"copy": 1}


def test_threads_have_scopes_of_their_own(proton, kernels):
    proton.start("p")
    barrier = threading.Barrier(2, timeout=20)

    def work(name):
        with proton.scope(name):
            barrier.wait()
            kernels.copy()
            barrier.wait()

    threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    proton.finalize()
    assert shape(read("p")[0]) == {"a": {"copy": 1}, "b": {"copy": 1}}


def test_one_scope_object_may_be_entered_by_several_threads_and_again_inside(proton, kernels):
    session, left = proton.start("p"), []
    shared, first_in, second_in = proton.scope("shared"), threading.Event(), threading.Event()

    def work():
        with shared:
            first_in.set()
            second_in.wait(20)
            kernels.copy()
        left.append(proton.context.depth(session))

    thread = threading.Thread(target=work)
    with proton.scope("outer"):
        thread.start()
        first_in.wait(20)
        with shared, shared:
            second_in.set()
            thread.join()
            kernels.add()
    proton.finalize()
    assert shape(read("p")[0]) == {"outer": {"shared": {"copy": 1, "shared": {"add": 1}}}}
    # Out of its own scope, the thread is in those of the main thread.
    assert left == [3]


def test_states_are_innermost(proton, kernels):
    proton.start("p")
    with proton.scope("s"), proton.state("warm"), proton.scope("t", {"a": 1.0}):
        kernels.copy()
    with proton.metadata_state():
        kernels.copy()
    proton.finalize()
    tree, _ = read("p")
    assert shape(tree)["s"] == {"t": {"warm": {"copy": 1}}}
    assert shape(tree)["__proton_launch_metadata"] == {"copy": 1}
    assert find(tree, "warm")[0]["metrics"] == {"a": 1.0}


def test_cpu_timed_scope_has_its_wall_time(proton):
    proton.start("p")
    with proton.cpu_timed_scope("slow"):
        time.sleep(0.002)
    proton.finalize()
    (slow,) = read("p")[0]["children"]
    assert slow["metrics"]["cpu_time (ns)"] >= 2_000_000
    with pytest.raises(ValueError, match="reserved"):
        proton.cpu_timed_scope("s", {"cpu_time": 1.0})


def test_profile_decorator(proton, kernels):
    @proton.profile(name="decorated")
    def work(times):
        for _ in range(times):
            kernels.copy()
        return times

    @proton.profile
    def plain():
        kernels.add()

    assert work(2) == 2
    assert not HOOKS.launch
    kernels.copy()
    plain()
    proton.finalize()
    assert shape(read("decorated")[0]) == {"copy": 2}
    assert shape(read(proton.DEFAULT_PROFILE_NAME)[0]) == {"add": 1}


def test_python_context_puts_launches_under_their_calls(proton, kernels):
    def caller():
        kernels.copy()

    proton.start("p", context="python")
    with proton.scope("no part of it"):
        caller()
    proton.finalize()
    frame, names = read("p")[0], []
    while frame["children"]:
        (frame,) = frame["children"] if len(frame["children"]) == 1 else frame["children"][-1:]
        names.append(frame["frame"]["name"])
    file = __file__.replace("\\", "/")
    assert names[-1] == "copy"
    assert names[-3].startswith(f"{file}:")
    assert names[-3].endswith("@caller")
    assert not any("/tkdebug/compat/" in name for name in names)


def test_trace_has_each_launch(proton, kernels):
    proton.start("p", data="trace")
    with proton.scope("s"):
        kernels.copy()
        kernels.add()
    proton.finalize(output_format="chrome_trace")
    with open("p.chrome_trace", encoding="utf-8") as file:
        trace = json.load(file)
    first, second = trace["traceEvents"]
    assert first["args"]["call_stack"] == ["ROOT", "s", "copy"]
    assert (first["name"], second["name"], first["ph"]) == ("copy", "add", "X")
    assert first["ts"] == 0
    assert second["ts"] >= first["dur"] > 0


def test_unfinished_scope_inside_another_is_reported(proton):
    proton.start("p")

    @proton.scope("outer")
    def forget():
        proton.enter_scope("inner")

    with pytest.raises(TkError, match="scope 'outer' was left before 'inner'"):
        forget()
    assert proton.context.depth(proton.start("p")) == 0

    def fail():
        with proton.scope("outer"):
            proton.enter_scope("inner")
            raise KeyError("the script's own")

    with pytest.raises(KeyError):
        fail()


def test_finalize_within_a_scope_and_twice(proton):
    proton.start("p")
    with proton.scope("s"):
        proton.finalize()
        proton.finalize()
        proton.finalize(0)
    assert shape(read("p")[0]) == {"s": {}}
    assert proton.context.depth(proton.start("p")) == 0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"backend": "nosuch"}, RuntimeError, "Unknown profiler: nosuch; there is 'cupti'"),
        ({"data": "table"}, RuntimeError, "Unknown data: table; there are tree, trace"),
        ({"context": "c"}, RuntimeError, "Unknown context source: c; there are shadow, python"),
        ({"hook": "nosuch"}, RuntimeError, "Unsupported hook: 'nosuch'; there is 'triton'"),
        ({"backend": "instrumentation"}, UnsupportedError, "no backend 'instrumentation'"),
        ({"mode": "pcsampling"}, UnsupportedError, "no mode 'pcsampling'"),
    ],
)
def test_start_refuses_by_name(proton, arguments, error, message):
    with pytest.raises(error, match=message):
        proton.start("p", **arguments)
    assert not proton.flags.flags.profiling_on


def test_sessions_and_formats_that_are_not_there_are_reported(proton):
    with pytest.raises(RuntimeError, match="Session has not been initialized: 99; no profiling"):
        proton.activate(99)
    session = proton.start("p")
    with pytest.raises(RuntimeError, match=f"initialized: 99; open are {session}"):
        proton.deactivate(99)
    with pytest.raises(RuntimeError, match="Unknown output format: xml"):
        proton.finalize(session, "xml")
    with pytest.raises(RuntimeError, match="data='tree', which is written as 'hatchet'"):
        proton.finalize(session, "chrome_trace")
    with pytest.raises(ValueError, match="Scope name mismatch: b != a"):
        (proton.enter_scope("a"), proton.exit_scope("b"))
    proton.exit_scope("a")
    proton.finalize(session)
    proton.start("no/such/folder/p")
    with pytest.raises(RuntimeError, match=r"no/such/folder/p\.hatchet: profile cannot be written"):
        proton.finalize()


def test_disabled_by_knob(proton):
    from triton import knobs

    with knobs.proton.scope():
        knobs.proton.disable = True
        assert proton.start("p") is None
        proton.finalize()
    assert knobs.proton.disable is False


def test_data_of_an_open_session(proton, kernels):
    session = proton.start("p")
    kernels.copy()
    tree, devices = proton.data.get(session)
    assert shape(tree) == {"copy": 1}
    assert "CPU" in devices


def test_what_is_not_in_the_file_is_said_once(proton, kernels, capsys, monkeypatch):
    from tkdebug.compat.proton import profile

    monkeypatch.setattr(profile, "_reported", set())
    for _ in range(2):
        proton.start("p")
        with proton.scope("torch [M=1]", {"flops": 1.0}):
            pass
        kernels.copy()
        proton.finalize()
    assert capsys.readouterr().err.splitlines() == [
        "tkdebug: proton session 'p': times are wall times of interpreted kernels, not a GPU's",
        "tkdebug: proton session 'p': no kernel of the script's own ran in scope 'torch [M=1]'; "
        "torch's and libraries' kernels are not timed",
    ]


def test_scopes_in_kernels_are_ignored_and_with_is_refused_at_its_line(proton):
    import torch
    import triton
    import triton.language as tl
    import triton.profiler.language as pl

    @triton.jit
    def marked(x):
        pl.enter_scope("load")
        value = tl.load(x)
        pl.exit_scope("load")
        tl.store(x, value + 1)

    @triton.jit
    def managed(x):
        with pl.scope("load"):
            tl.store(x, 1)

    x = torch.zeros(1, device="cuda")
    marked[(1,)](x)
    assert x.item() == 1
    with pytest.raises(CompileError, match="with") as refused:
        managed[(1,)](x)
    assert refused.value.frames[-1].line == managed.fn.__code__.co_firstlineno + 2


def test_viewer_shows_what_was_measured(proton, kernels, capsys):
    import triton.profiler.viewer as viewer

    proton.start("p", hook="triton")
    with proton.scope("s"):
        kernels.add()
        kernels.add()
    proton.finalize()
    tree, metrics = viewer.parse(["count", "gbyte/s"], "p.hatchet")
    capsys.readouterr()
    viewer.print_tree(tree, metrics)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines] == ["ROOT", "s", "add_100_4"]
    assert "2.000" in lines[2]
    viewer.show_metrics("p.hatchet")
    assert "- flops32" in capsys.readouterr().out


@pytest.mark.parametrize("dtype", ["float32", "float16", "float8_e4m3fn"])
def test_cublas_multiplies_by_the_transposed(proton, dtype):
    import torch
    from triton._C.libtriton import nvidia

    kind = getattr(torch, dtype)
    a, b = (torch.randint(-2, 3, (size, 8)).to(kind).to("cuda") for size in (4, 6))
    c = torch.empty(4, 6, dtype=kind, device="cuda")
    blas = nvidia.cublas.CublasLt(torch.empty(16, device="cuda", dtype=torch.uint8))
    blas.matmul(a, b, c)
    assert torch.equal(c.float(), a.float() @ b.float().T)
    with pytest.raises(TkError, match=r"got a \(4, 8\), b \(6, 8\), c \(6, 4\), expected"):
        blas.matmul(a, b, c.T)


def test_benchmark_that_profiles_beside_a_library(proton, kernels, capsys):
    """The profiling part of a benchmark: warm up, record, and show, for a library, too."""
    import torch
    import triton.profiler.viewer as viewer
    from triton._C.libtriton import nvidia

    a = torch.ones(16, 16, device="cuda")
    blas = nvidia.cublas.CublasLt(torch.empty(16, device="cuda", dtype=torch.uint8))

    def library():
        with proton.scope("cublas", {"bytes": 3 * 16 * 16 * 4, "flops32": 2.0 * 16**3}):
            blas.matmul(a, a, torch.empty_like(a))

    @contextlib.contextmanager
    def recording():
        proton.activate(session)
        try:
            yield
        finally:
            proton.deactivate(session)

    session = proton.start("bench", hook="triton")
    proton.deactivate()
    for work in (library, kernels.add):
        work()
        with recording():
            for _ in range(3):
                work()
    proton.finalize()
    tree, metrics = viewer.parse(["tflop32/s", "time/ms"], "bench.hatchet")
    viewer.print_tree(tree, metrics)
    rows = {line.split()[-1]: line for line in capsys.readouterr().out.splitlines()}
    assert list(rows) == ["ROOT", "add_100_4", "cublas"]
    assert "nan nan" in rows["cublas"]
    assert find(read("bench")[0], "add_100_4")[0]["metrics"]["count"] == 3
    assert find(read("bench")[0], "cublas")[0]["metrics"]["flops32"] == 3 * 2.0 * 16**3


def test_viewer_reads_a_graph_frame_where_hatchet_is(proton, kernels, monkeypatch):
    import triton.profiler.viewer as viewer

    class GraphFrame:
        """Asked of hatchet itself."""

        def __init__(self, literal):
            self.literal = literal
            self.dataframe = SimpleNamespace(columns=["name", "count", "time (ns)", "device_id"])

        from_literal = classmethod(lambda cls, literal: cls(literal))

        def show_metric_columns(self):
            return sorted(self.literal[0]["metrics"])

        def update_inclusive_columns(self):
            self.updated = True

    proton.start("p")
    with proton.scope("empty"):
        pass
    kernels.copy()
    proton.finalize()
    monkeypatch.setitem(sys.modules, "hatchet", None)
    with pytest.raises(ImportError, match=r"pip install llnl-hatchet; viewer\.parse and print"):
        viewer.read("p.hatchet")
    monkeypatch.setitem(sys.modules, "hatchet", SimpleNamespace(GraphFrame=GraphFrame))
    frame, inclusive, exclusive, devices = viewer.read("p.hatchet")
    assert frame.updated
    assert [child["frame"]["name"] for child in frame.literal[0]["children"]] == ["copy"]
    assert (inclusive, exclusive) == (["count", "time (ns)"], ["name", "device_id"])
    assert "CPU" in devices
