"""`--compiler triton`: which Triton is taken, and how its kernels reach hooks and sessions.

No Triton is installed where tests run: packages and kernels here are made to look like upstream's.
"""

import os
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from tkdebug.cli.runs.checks import check_upstream
from tkdebug.compat.upstream.installed import installed_triton
from tkdebug.compat.upstream.recording import (
    UpstreamKernel,
    UpstreamRecorded,
    caught_dumps,
    parse_dumps,
    passes_of,
    snapshots_of,
)
from tkdebug.errors import UsageError
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.device.driver import has_real_gpu

COMPLETE = ("_C/libtriton.so", "backends/nvidia/compiler.py")
TTIR = """\
#loc = loc("/tmp/k.py":3:0)
module {
  tt.func public @add(%X: !tt.ptr<f32>) {
    %x = tt.load %X : !tt.ptr<f32> loc(#loc2)
    tt.store %X, %x : !tt.ptr<f32> loc(#loc3)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc2 = loc("/tmp/k.py":4:5)
#loc3 = loc("/tmp/k.py":5:5)
"""
TTGIR = TTIR.replace(
    "    tt.store %X, %x", "    %y = ttg.convert_layout %x : f32 loc(#loc2)\n    tt.store %X, %y"
)


def package(folder, files=COMPLETE, version="3.8.0", metadata=None, library=b"\x7fELF", named=True):
    root = folder / "triton"
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_bytes(library)
    root.mkdir(exist_ok=True)
    (root / "__init__.py").write_text(f"__version__ = '{version}'\n")
    if metadata is not None or named:
        metadata = metadata or version
        info = folder / f"triton-{metadata}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: triton\nVersion: {metadata}\n")
    if named:
        (info / "entry_points.txt").write_text(
            "[triton.backends]\nnvidia = triton.backends.nvidia\n"
        )
    return root


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    for name in [n for n in sys.modules if n.partition(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


def test_complete_triton_is_taken(here):
    root = package(here, metadata="3.8.0")
    found = installed_triton()
    assert (found.version, found.folder) == ("3.8.0", root)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"files": COMPLETE[1:]}, "has no compiler .*pip install --force-reinstall triton==3.8.0"),
        ({"files": COMPLETE[:1]}, "has no backend"),
        ({"version": "3.4.0"}, "Triton 3.4.0 is installed; expected 3.6 to 3.9"),
        ({"library": b"version https://git-lfs"}, "libtriton.so is no shared library; pip install"),
        ({"named": False}, "no metadata here names the backends of Triton 3.8.0"),
        ({"metadata": "3.6.0"}, "is mixed: its files are 3.8.0, its metadata says 3.6.0"),
    ],
)
def test_triton_that_cannot_compile_is_refused(here, made, message):
    package(here, **made)
    with pytest.raises(UsageError, match=message):
        installed_triton()


def test_interpreting_triton_is_refused(here, monkeypatch):
    package(here)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(UsageError, match="TRITON_INTERPRET=1"):
        installed_triton()


@pytest.mark.parametrize(
    ("asked", "mode", "named"),
    [
        ({}, "interpret", "--mode interpret"),
        ({"checks": ("race",)}, "native", "--check race"),
        ({"check_launches": "first"}, "native", "--check-launches first"),
        ({"interpret_kernels": ("soft*",)}, "native", r"--interpret soft\*"),
        ({"triton_version": "3.8"}, "native", "--triton 3.8"),
        ({"cross_compile": "sm_80"}, "native", "--target sm_80"),
    ],
)
def test_what_only_tkdebug_s_compiler_does_is_refused(asked, mode, named):
    with pytest.raises(UsageError, match=f"--compiler triton: {named} is about kernels"):
        check_upstream(asked, mode)


def test_without_a_gpu_it_is_said_that_nothing_is_launched(here, capsys):
    if has_real_gpu():
        pytest.skip("there is a GPU")
    package(here)
    check_upstream({}, "native")
    assert "there is no GPU here; Triton 3.8.0 compiles for a target" in capsys.readouterr().err


def add(X, n, B):
    pass


def compiled_kernel(**asm):
    metadata = SimpleNamespace(num_warps=4, num_stages=3, arch="sm90")
    fn = SimpleNamespace(arg_names=["X", "n", "B"], fn=add, raw_src="def add(X, n, B):\n")
    signature = {"X": "*fp32", "n": "i32", "B": "constexpr"}
    src = SimpleNamespace(fn=fn, signature=signature, constants={(2,): 64})
    asm = {"ttir": TTIR, "ttgir": TTGIR, "ptx": "", **asm}
    return SimpleNamespace(
        name="add", hash="h", src=src, metadata=metadata, asm=asm, function=1, module=2
    )


def test_record_of_a_compile_has_its_stages_by_line():
    event = UpstreamKernel(compiled_kernel()).compiled(5, False)
    assert event.signature == "(X: *fp32, n: i32, B: constexpr = 64)"
    assert list(event.artifacts) == ["source", "ttir", "ttgir", "ptx"]
    assert [(f.file, f.line) for f in event.op_lines["ttir"][4]] == [("/tmp/k.py", 4)]
    assert [(p.name, p.before, p.after) for p in event.passes] == [
        ("front-end", "", "ttir"),
        ("ttir to ttgir", "ttir", "ttgir"),
    ]
    first, second = (p.op_ids for p in event.passes)
    assert set(first) < set(second)
    (new,) = set(second) - set(first)
    assert event.passes[1].ops[new].name == "ttg.convert_layout"
    assert event.line_table()["absent"]


def test_launches_reach_hooks_as_others_do():
    ran, seen = [], []
    kernel = UpstreamKernel(compiled_kernel())
    run = kernel.recorded(lambda *arguments: ran.append(arguments), 0)
    x = torch.ones(4)
    arguments = (2, 1, 1, 7, "function", "packed", None, None, None, x, 4, 64)
    run(*arguments)
    hook = Hook(enter=lambda of, record: seen.append((of.name, record.grid, record.arguments)))
    HOOKS.add(hook)
    try:
        run(*arguments)
        run(0, *arguments[1:])
    finally:
        HOOKS.remove(hook)
    assert [each[0] for each in ran] == [2, 2, 0]
    ((name, grid, infos),) = seen
    assert (name, grid) == ("add", (2, 1, 1))
    assert [info.name for info in infos] == ["X", "n", "B"]
    assert kernel.parameter_kinds == ("tensor", "int", "fixed")


class FakeCompiledKernel:
    """The part of upstream's class that is replaced."""

    def __init__(self):
        vars(self).update(vars(compiled_kernel()))
        self.metadata_group = {}
        self._run = None

    def _init_handles(self):
        if self._run is None:
            self._run = lambda *arguments: "launched"


def fake_triton(monkeypatch):
    names = ("triton", "triton.compiler", "triton.compiler.compiler", "triton.runtime")
    modules = {name: ModuleType(name) for name in (*names, "triton.runtime.driver")}
    for name, module in modules.items():
        module.__path__ = []
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(modules[parent], last, module)
    compiler = modules["triton.compiler.compiler"]
    compiler.CompiledKernel = FakeCompiledKernel
    for name in ("triton", "triton.compiler", "triton.compiler.compiler"):
        modules[name].compile = lambda: FakeCompiledKernel()
    active = SimpleNamespace(get_current_device=lambda: 3)
    modules["triton.runtime.driver"].driver = SimpleNamespace(active=active)
    return modules["triton"]


def test_installed_triton_is_heard_of_and_put_back(monkeypatch):
    triton = fake_triton(monkeypatch)
    before = triton.compile, FakeCompiledKernel._init_handles
    compiles, launches = [], []
    hook = Hook(compiled=compiles.append, enter=lambda of, record: launches.append(of.device))
    HOOKS.add(hook)
    recorded = UpstreamRecorded()
    try:
        kernel = triton.compile()
        for _ in range(2):
            kernel._init_handles()
        assert kernel._run(1, 1, 1, 0, None, None, None, None, None, 0, 4, 64) == "launched"
    finally:
        HOOKS.remove(hook)
        recorded.restore()
    assert [event.name for event in compiles] == ["add"]
    assert launches == [3]
    assert (triton.compile, FakeCompiledKernel._init_handles) == before


def dump(name, text, kind="builtin.module"):
    return f"// -----// IR Dump Before Pass ({name}) ('{kind}' operation) //----- //\n{text}\n\n"


def test_passes_are_read_from_dumps():
    changed = TTGIR.replace("f32", "tensor<4xf32, #blocked1>")
    text = (
        "a warning\n"
        + dump("inline", "#blocked = #ttg.x<{a}>\n" + TTIR)
        + dump("canonicalize", TTIR, "tt.func")
        + dump("coalesce", "#blocked = #ttg.x<{a}>\n" + TTIR)
        + dump("licm", "#blocked = #ttg.y<{}>\n#blocked1 = #ttg.x<{a}>\n" + changed)
    )
    dumps, rest = parse_dumps(text)
    assert rest == "a warning\n"
    done = passes_of(snapshots_of(dumps))
    assert [(p.name, p.before, p.after, p.time_ns) for p in done.passes] == [
        ("front-end", "", "ttir", 0),
        ("inline", "ttir", "ttir", 0),
        ("coalesce", "ttir", "after coalesce", 0),
    ]
    # One name means one layout in all texts of a kernel.
    assert "tensor<4xf32, #blocked>" in done.texts["after coalesce"]
    assert "#blocked1 = #ttg.y<{}>" in done.texts["after coalesce"]
    assert done.passes[1].op_ids is None


def test_dumps_are_caught_from_the_process(capfd):
    with caught_dumps(True) as dumps:
        os.write(2, b"before\n" + dump("cse", TTIR).encode())
    assert [each.next_pass for each in dumps] == ["cse"]
    assert capfd.readouterr().err == "before\n"
    with caught_dumps(False) as dumps:
        os.write(2, b"as ever\n")
    assert (dumps, capfd.readouterr().err) == ([], "as ever\n")
