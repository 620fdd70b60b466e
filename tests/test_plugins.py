"""Plugins by entry points: the package of `examples/plugin`, installed, and faulty ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from warm_python import ENVIRONMENT, run_module

from tkdebug import plugins
from tkdebug.errors import Frame
from tkdebug.instrument.session import Session
from tkdebug.records.events import Fault
from tkdebug.records.hook_chain import Hook, HookChain
from tkdebug.runtime.launch import first_launch

ROOT = Path(__file__).parents[1]
SCRIPT = """\
import torch
import triton
import triton.language as tl


@triton.jit
def negated(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    tl.store(out_ptr + offs, -(-x))


x = torch.arange(16, dtype=torch.float32, device="cuda")
out = torch.empty_like(x)
for _ in range(2):
    negated[(1,)](x, out, BLOCK=16)
print("right" if torch.equal(out, x) else "wrong")
"""


def tkdebug(
    site: Path, *arguments: object, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run tkdebug in a Python that has the packages of `site` besides."""
    path = os.pathsep.join([str(ROOT), str(site)])
    variables = {**ENVIRONMENT, "PYTHONPATH": path, "TKDEBUG_MODE": "interpret"}
    return run_module("tkdebug", *arguments, env=variables, cwd=cwd)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The example, installed from a copy, since builds leave files beside the sources."""
    folder = tmp_path_factory.mktemp("plugin")
    source, target = folder / "source", folder / "site"
    files = [file for file in (ROOT / "examples" / "plugin").rglob("*") if file.suffix != ".pyc"]
    for file in files:
        if file.is_file():
            copy = source / file.relative_to(ROOT / "examples" / "plugin")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", target, source]
    done = subprocess.run([*pip, *map(str, options)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return target


class Recorded(NamedTuple):
    """A run of `SCRIPT` with the installed example."""

    done: subprocess.CompletedProcess[str]
    session: Path
    report: str


@pytest.fixture(scope="module")
def recorded(site: Path, tmp_path_factory) -> Recorded:
    folder = tmp_path_factory.mktemp("run")
    script, session, report = folder / "script.py", folder / "run.tkd", folder / "out.md"
    script.write_text(SCRIPT)
    done = tkdebug(site, "run", "-o", session, "--report", report, script)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr
    return Recorded(done, session, report.read_text())


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


def make_plugin(site: Path, group: str, code: str, name: str = "broken") -> Path:
    """A package `faulty-NAME` 1.0 in `site` whose entry point NAME of `group` is its `PLUGIN`."""
    info = site / f"faulty_{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: faulty-{name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = faulty_{name}:PLUGIN\n")
    (site / f"faulty_{name}.py").write_text(code)
    return site


def reported(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if "faulty" in line]


def test_installed_pass_is_run_at_its_place(recorded: Recorded) -> None:
    with Session.open(recorded.session) as session:
        (kernel,) = session.kernels()
        runs = session.passes(kernel.hash)
    names = [run.name for run in runs]
    assert names.index("cancel-negations") == names.index("canonicalize") + 1
    assert runs[names.index("cancel-negations")].rewrites


def test_installed_hook_is_called_at_each_launch(recorded: Recorded) -> None:
    assert "launch-count: negated: 2\n" in recorded.done.stderr


def test_installed_report_format_is_known_by_suffix_and_name(
    site: Path, recorded: Recorded
) -> None:
    assert "| negated | 2 |" in recorded.report
    done = tkdebug(site, "report", "--format", "markdown", recorded.session)
    assert done.stdout == recorded.report


def test_installed_check_finds_a_planted_fault(site: Path, tmp_path: Path) -> None:
    script = tmp_path / "planted.py"
    script.write_text(SCRIPT.replace("-(-x))", "1 / x)").replace('"wrong"', '"planted"'))
    done = tkdebug(site, "run", "--check", "infinity", script)
    assert (done.returncode, done.stdout) == (3, "planted\n"), done.stderr
    said = "planted.py:10: plugin-check in negated: infinity: an infinity is stored to offset 0 of"
    assert said in done.stderr


def test_doctor_lists_plugins_with_their_distribution(site: Path) -> None:
    lines = tkdebug(site, "doctor").stdout.splitlines()
    found = {line.split()[1]: line for line in lines if line.startswith("plugin ")}
    ours = {"double-negation", "infinity", "markdown", "launch-count", "large-block", "sectors"}
    assert set(found) == ours
    assert all(" ok " in line and "tkdebug-example 0.1.0" in line for line in found.values())


def test_installed_instrumentation_measures_lines(site: Path, script: Path) -> None:
    report = script.with_name("out.json")
    done = tkdebug(site, "run", "--instrument", "sectors", "--report", report, script)
    assert done.returncode == 0, done.stderr
    # 16 floats are two sectors, which each of the four warps reads.
    place = "script.py:9 tt.load of negated: accesses 8, elements 128, sectors 16; 2 times"
    assert "measured by sectors" in done.stderr
    assert place in done.stderr
    load, store = json.loads(report.read_text())["instrumentation"]
    assert (load["line"], load["op"], load["totals"]["sectors"]) == (9, "tt.load", 16)
    assert (store["line"], store["op"], store["measured"]) == (10, "tt.store", 2)
    unknown = tkdebug(site, "run", "--instrument", "sector", script)
    assert unknown.returncode == 2
    assert "sector" in unknown.stderr


RAISING_PASS = """
from dataclasses import dataclass
from tkdebug.compiler.passes import PassPlugin

@dataclass(frozen=True)
class Half:
    name = "half"

    def run(self, module, rewriter):
        for op in list(module.walk()):
            if op.name == "arith.negf":
                rewriter.replace_with_values(op, "drop", op.operands)
                raise ValueError("in the middle")

PLUGIN = PassPlugin(Half(), before="canonicalize")
"""
BREAKING_PASS = RAISING_PASS.replace(
    'raise ValueError("in the middle")', "op.block = None"
).replace(
    'rewriter.replace_with_values(op, "drop", op.operands)',
    "op.result.type = module.function.regions[0].block.arguments[0].type",
)
HOOK = "from tkdebug.records.hook_chain import Hook\n"
HOOK += "PLUGIN = Hook(enter=lambda kernel, record: 1 / 0)\n"


CHECK = """
from tkdebug.interpreter.checks.plugin_checks import CheckPlugin
from tkdebug.interpreter.observers import Moments, Observer

class Check(Observer):
    def __init__(self, module, faults):
        pass

    def moments(self, op):
        return Moments.AFTER

    def after(self, run, op, operands, results):
        raise LookupError(op.name)

PLUGIN = CheckPlugin(Check)
"""
LOST_PASS = RAISING_PASS.replace('before="canonicalize"', 'after="nothing"')
FAULTY = {
    "absent": ("tkdebug.passes", "raise ImportError('none')", "ImportError: none"),
    "exiting": ("tkdebug.passes", "import sys; sys.exit(4)", "SystemExit: 4"),
    "number": ("tkdebug.passes", "PLUGIN = 5", "is a int, expected a tkdebug.compiler.passes"),
    "raising": ("tkdebug.passes", RAISING_PASS, "ValueError: in the middle"),
    "breaking": ("tkdebug.passes", BREAKING_PASS, "IRError: "),
    "lost": ("tkdebug.passes", LOST_PASS, "the tile pipeline has no pass 'nothing'"),
    "loading": ("tkdebug.hooks", "1 / 0", "ZeroDivisionError: division by zero"),
    "checking": ("tkdebug.checks", CHECK, "LookupError: "),
    "launching": ("tkdebug.hooks", HOOK, "ZeroDivisionError: division by zero"),
}


def test_plugins_that_raise_are_each_named_once_and_skipped(script: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    for name, (group, code, _) in FAULTY.items():
        make_plugin(site, group, code, name)
    done = tkdebug(site, "run", "--check", "checking", script)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr
    lines = reported(done)
    assert len(lines) == len(FAULTY)
    for name, (group, _, reason) in FAULTY.items():
        said = f"tkdebug: {group} plugin '{name}' of faulty-{name} 1.0: "
        (line,) = [line for line in lines if line.startswith(said)]
        assert reason in line
        assert line.endswith("; it is skipped")


def test_plugin_that_ends_the_process_at_its_import_is_named(script: Path, tmp_path: Path) -> None:
    site = make_plugin(tmp_path / "site", "tkdebug.hooks", "import os; os._exit(7)")
    done = tkdebug(site, "run", script)
    assert done.returncode == 7
    (line,) = reported(done)
    assert "plugin 'broken' of faulty-broken 1.0: it ends this process, by os._exit(7)" in line


def entry_point(load: Callable[[], object]) -> SimpleNamespace:
    dist = SimpleNamespace(name="slow", version="1.0")
    return SimpleNamespace(name="slow", group="tkdebug.hooks", dist=dist, value="a:b", load=load)


def test_plugin_whose_import_takes_long_is_named_meanwhile(monkeypatch) -> None:
    said, is_said = [], threading.Event()
    monkeypatch.setattr(plugins, "LONG_IMPORT_S", 0.0)
    monkeypatch.setattr(plugins, "tell", lambda text: (said.append(text), is_said.set()))

    def load() -> object:
        assert is_said.wait(60)
        return Hook()

    assert plugins.Plugin(entry_point(load)).load(Hook) is not None
    (line,) = said
    assert line.startswith("tkdebug.hooks plugin 'slow' of slow 1.0: its import takes long")


def test_plugin_whose_import_is_interrupted_is_named(capsys) -> None:
    def load() -> object:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plugins.Plugin(entry_point(load)).load(Hook)
    assert "'slow' of slow 1.0: its import was interrupted\n" in capsys.readouterr().err


def test_doctor_says_why_a_plugin_is_skipped(tmp_path: Path) -> None:
    site = make_plugin(tmp_path / "site", "tkdebug.hooks", "1 / 0")
    make_plugin(site, "tkdebug.later", "PLUGIN = 1", "early")
    make_plugin(site, "tkdebug.instrumentation", "PLUGIN = 1", "number")
    done = tkdebug(site, "doctor")
    lines = {s.split()[1]: s for s in done.stdout.splitlines() if s.startswith("plugin ")}
    skipped = "tkdebug.hooks, of faulty-broken 1.0: skipped: ZeroDivisionError"
    assert skipped in lines["broken"]
    assert "this version has no such group" in lines["early"]
    expected = "expected a tkdebug.runtime.instrumentation.plugin.Instrumentation"
    assert expected in lines["number"]
    assert reported(done) == []


def test_faults_are_printed_though_a_plugin_listens(monkeypatch, capsys) -> None:
    heard: list[Fault] = []
    plugin = SimpleNamespace(problem="", name="listener")
    monkeypatch.setattr(first_launch, "HOOKS", chain := HookChain())
    monkeypatch.setattr(
        first_launch, "loaded", lambda group, kind: [(plugin, Hook(fault=heard.append))]
    )
    first_launch.add_plugin_hooks.__wrapped__()
    fault = Fault(kind="oob-load", kernel="k", frames=(Frame("k.py", 3, "k"),), message="outside")
    chain.fault(fault)
    assert heard == [fault]
    assert "outside" in capsys.readouterr().err


def test_report_of_a_renderer_that_raises_names_it(script: Path, tmp_path: Path) -> None:
    code = (
        "from tkdebug.instrument.report import ReportFormat\n"
        "def render(session, faults):\n"
        "    yield 'half'\n"
        "    raise KeyError('column')\n"
        "PLUGIN = ReportFormat(render, ('.odd',))\n"
    )
    site = make_plugin(tmp_path / "site", "tkdebug.renderers", code)
    out = tmp_path / "out.odd"
    done = tkdebug(site, "run", "--report", out, script)
    assert (done.returncode, done.stdout) == (2, "right\n")
    (line,) = reported(done)
    assert "tkdebug.renderers plugin 'broken' of faulty-broken 1.0: KeyError: 'column'" in line
    assert not out.exists()


def test_plugin_cannot_take_the_name_of_a_format(script: Path, tmp_path: Path) -> None:
    site = make_plugin(tmp_path / "site", "tkdebug.renderers", "1 / 0")
    entries = site / "faulty_broken-1.0.dist-info" / "entry_points.txt"
    entries.write_text(entries.read_text().replace("broken =", "json ="))
    done = tkdebug(site, "run", "--report", tmp_path / "out.odd", script)
    assert done.returncode == 2
    assert "tkdebug has one of that name; it is skipped" in reported(done)[0]


def test_help_looks_up_no_plugins(tmp_path: Path) -> None:
    code = "import sys, tkdebug.cli as c\ntry: c.main(['--help'])\nexcept SystemExit: pass\n"
    code += "print('importlib.metadata' in sys.modules, file=sys.stderr)"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stderr == "False\n"
