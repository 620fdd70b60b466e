"""The profilers in examples/: each does what its page says, in 80 lines."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from launching import enter, fault, launch, leave

import tkdebug
import tkdebug.language as tl
from tkdebug.instrument import KernelObject, kernel_launch_enter
from tkdebug.instrument.launch_listeners.kernel_objects import launch_callers
from tkdebug.records.hook_chain import HOOKS

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PROFILERS = [
    *sorted((EXAMPLES / "profilers").glob("*.py")),
    EXAMPLES / "c_tool" / "tau_profile.c",
]


@tkdebug.jit
def increment(x, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(x + at, tl.load(x + at) + 1)


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / "profilers" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", PROFILERS, ids=lambda path: path.stem)
def test_examples_are_short_and_described(path):
    assert len(path.read_text().splitlines()) <= 80
    assert path.name in (EXAMPLES.parent / "docs" / "external_profilers.md").read_text()


# OpenTelemetry


@pytest.fixture
def traced():
    """Spans that end, and a function that puts launches into one span of the application."""
    pytest.importorskip("opentelemetry.sdk", reason="needs opentelemetry-sdk")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("kernels")

    def run(work):
        tracing = example("opentelemetry_tracer").KernelTracer(tracer)
        with tracing, tracer.start_as_current_span("request"):
            work()
        return {span.name: span for span in exporter.get_finished_spans()}

    return run


def test_spans_have_the_facts_of_kernels(traced):
    x = torch.zeros(16)

    def work():
        with tkdebug.mode("interpret"):
            increment[(1,)](x, N=16)

    spans = traced(work)
    span = spans["increment"]
    assert span.parent.span_id == spans["request"].context.span_id
    assert span.attributes["code.file.path"] == __file__
    line = span.attributes["code.line.number"]
    assert Path(__file__).read_text().splitlines()[line].startswith("def increment")
    assert span.attributes["kernel.grid"] == (1, 1, 1)
    assert span.attributes["kernel.mode"] == "interpret"
    assert "kernel.registers" not in span.attributes
    assert spans["request"].start_time <= span.start_time < span.end_time


def test_faults_are_events_of_their_span(traced):
    def work():
        entered = enter("one")
        HOOKS.fault(fault(launch_id=entered[1].id))
        leave(entered)
        launch("two")

    spans = traced(work)
    (event,) = spans["one"].events
    assert (event.name, event.attributes["code.line.number"]) == ("oob-load", 3)
    assert not spans["one"].status.is_ok
    assert spans["two"].events == ()
    assert spans["two"].status.is_unset
    assert HOOKS.launch is None


# Counters


def test_counters_are_summed_by_kernel(capsys):
    ticks = iter([10, 13, 20, 21, 30, 37])
    module = example("counter_collector")
    with module.CounterCollector({"ticks": lambda: next(ticks)}) as collector:
        for name in ("one", "two", "one"):
            launch(name)
    assert collector.sums == {"one": {"ticks": 3 + 7}, "two": {"ticks": 1}}
    assert collector.launches == {"one": 2, "two": 1}
    assert HOOKS.launch is None
    counters = module.system_counters()
    assert counters["page faults"]() > 0


# Calling contexts


def outer(work):
    work()


def test_callers_are_of_the_script_alone():
    found = []

    def callback(kernel: KernelObject) -> None:
        found.append(kernel.callers())

    with kernel_launch_enter(callback), tkdebug.mode("interpret"):
        outer(lambda: increment[(1,)](torch.zeros(16), N=16))
    here = [frame for frame in found[0] if frame.file == __file__]
    assert [frame.function for frame in here] == [
        "test_callers_are_of_the_script_alone",
        "outer",
        "<lambda>",
    ]
    assert "launch_callers" not in {frame.function for frame in found[0]}
    assert launch_callers()[-1].function == "test_callers_are_of_the_script_alone"


SCRIPT = """
import sys; sys.path.insert(0, sys.argv[2])
from launching import launch
from tkdebug.instrument.launch_listeners.native_tools import load_tool
load_tool(sys.argv[1])
def layer(name):
    launch(name, duration_ns=2_000)
def step():
    layer("one")
    layer("two")
for _ in range(2):
    step()
launch("one", duration_ns=500)
"""


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    """The folder of a profile in TAU's format."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("tau")
    source = EXAMPLES / "c_tool" / "tau_profile.c"
    command = [compiler, "-Wall", "-Werror", "-shared", "-fPIC", "-o", folder / "tool.so", source]
    subprocess.run(command, check=True)
    script = folder / "s.py"
    script.write_text(SCRIPT)
    command = [sys.executable, script, folder / "tool.so", Path(__file__).parent]
    environment = {**os.environ, "RANK": "3", "PROFILEDIR": str(folder)}
    subprocess.run(command, check=True, env=environment)
    return folder


def test_profile_of_tau_has_calling_contexts(profile):
    lines = (profile / "profile.3.0.0").read_text().splitlines()
    count = int(lines[0].split()[0])
    assert lines[0] == f"{count} templated_functions_MULTI_TIME"
    assert lines[count + 2 :] == ["0 aggregates"]
    path = [line for line in lines if "=>" in line and '" 2 0 4.000 4.000 0 ' in line]
    names = [[label.split(" [{")[0] for label in one.split(" => ")] for one in path]
    # `launch` and `leave` stand for what launches.
    contexts = [[name for name in one[1:] if name not in ("launch", "leave")] for one in names]
    assert [one for one in contexts if one[-1] in ("one", "two")] == [
        ["<module>", "step", "layer", "one"],
        ["<module>", "step", "layer", "two"],
    ]


def test_hatchet_reads_the_profile_of_tau(profile):
    hatchet = pytest.importorskip("hatchet", reason="needs llnl-hatchet")
    data = hatchet.GraphFrame.from_tau(str(profile)).dataframe
    sums = data.groupby("name")["time"].sum().to_dict()
    assert (sums["one"], sums["two"], sums["layer"]) == (4.5, 4, 0)
    calls = data.groupby("name")["Calls"].sum().to_dict()
    assert (calls["one"], calls["two"], calls["step"]) == (3, 2, 4)
    (step,) = data.loc[data["name"] == "step", "file"].unique()
    assert step == str(profile / "s.py")
