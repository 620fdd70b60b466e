"""An installed Triton as a second opinion: what is sent to it, and what becomes of its answers.

The Triton that is asked is made up (`made_up_triton.py`); where `TKDEBUG_TEST_TRITON` names a
Python with a real one, that is asked, too.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import asked_kernels as kernels
import pytest
import torch
from made_up_triton import write_package
from native_support import needs_codegen
from warm_python import run_module

import tkdebug
import tkdebug.language as tl
from tkdebug.compat.upstream.asking.asker import TritonAsker, asking
from tkdebug.compat.upstream.asking.questions import question_of
from tkdebug.compat.upstream.installed import triton_of
from tkdebug.errors import CompileError, Frame, UsageError
from tkdebug.knobs import KNOBS
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.upstream_hooks import COMPILE_HOOKS

REAL = os.environ.get("TKDEBUG_TEST_TRITON")
needs_triton = pytest.mark.skipif(not REAL, reason="TKDEBUG_TEST_TRITON names no Python")
FILE = kernels.__file__


@pytest.fixture
def faults():
    found = []
    hook = Hook(fault=found.append)
    HOOKS.add(hook)
    yield found
    HOOKS.remove(hook)


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    """The folder of a made-up Triton that this Python finds."""
    write_package(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


@pytest.fixture
def asker(made_up, request):
    """An asker of the made-up Triton; `request.param` is its limit in seconds."""
    asker = TritonAsker(sys.executable, "3.9.0", 90, limit_s=getattr(request, "param", 30))
    yield from asked_by(asker)


def asked_by(asker):
    COMPILE_HOOKS.asker = asker
    yield asker
    COMPILE_HOOKS.asker = None
    asker.conclude(0.0)


def launch(kernel, *arguments, **keywords):
    kernel.kernels.clear()
    kernel.interpret[(1,)](torch.zeros(16, dtype=torch.int32), *arguments, **keywords)


def line_of(kernel, text):
    lines = kernel.src.splitlines()
    first = kernel.kernel_source.definition.lineno
    return first + next(n for n, line in enumerate(lines) if text in line)


def settled(asker):
    assert asker.wait(60) == 0
    return asker.answers


def test_kernel_that_both_compile_is_no_finding(asker, faults):
    launch(kernels.taken, 5, 16)
    (answer,) = settled(asker)
    assert (answer.kernel, answer.verdict, answer.differs) == ("taken", "takes", False)
    assert answer.seconds > 0
    assert faults == []


def test_each_signature_is_asked_once(asker):
    for n in (5, 6, 1, 1 << 40):
        launch(kernels.taken, n, 16)
    signatures = [answer.signature for answer in settled(asker)]
    assert len(signatures) == len(set(signatures)) == 3


@needs_codegen
def test_native_kernels_are_asked_about_too(asker):
    kernels.taken.kernels.clear()
    with tkdebug.mode("native"):
        kernels.taken.warmup(torch.int32, 16, 16, grid=(1,))
    (answer,) = settled(asker)
    assert (answer.verdict, answer.refused) == ("takes", "")


def test_kernel_that_triton_refuses_is_a_fault_at_its_line(asker, faults):
    launch(kernels.refused, 5)
    settled(asker)
    (fault,) = faults
    line = line_of(kernels.refused, "REFUSED")
    assert (fault.kind, fault.severity, fault.kernel) == ("triton-refuses", "error", "refused")
    assert fault.frames == (Frame(FILE, line, "refused"),)
    expected = "Triton 3.9.0 for sm_90 refuses what tkdebug compiles: no REFUSED"
    assert fault.message == expected
    assert "(p: *i32, n: i32)" in fault.hint


def test_refusal_in_a_called_function_has_the_chain_of_calls(asker, faults):
    launch(kernels.calls, 5)
    settled(asker)
    (fault,) = faults
    assert fault.frames == (
        Frame(FILE, line_of(kernels.calls, "helper("), "calls"),
        Frame(FILE, line_of(kernels.helper, "REFUSED"), "helper"),
    )


def test_refusal_by_a_pass_has_the_place_and_text_of_its_diagnostic(asker, faults):
    launch(kernels.fails_by_pass, 5)
    settled(asker)
    (fault,) = faults
    assert fault.line == line_of(kernels.fails_by_pass, "FAILS_BY_PASS")
    assert "'tt.load' op is odd (RuntimeError: PassManager::run failed)" in fault.message


def test_kernel_that_tkdebug_alone_refuses_is_a_warning_at_its_error(asker, faults):
    with pytest.raises(CompileError):
        launch(kernels.wrong, 5)
    settled(asker)
    error, fault = faults
    assert (error.kind, fault.kind, fault.severity) == (
        "compile-error",
        "triton-accepts",
        "warning",
    )
    assert fault.frames == error.frames
    assert fault.message.endswith(f"compiles what tkdebug refuses: {error.message}")


def test_kernel_that_both_refuse_is_no_finding(asker, faults):
    with pytest.raises(CompileError):
        launch(kernels.wrong_there_too, 5)
    (answer,) = settled(asker)
    assert (answer.verdict, answer.differs) == ("refuses", False)
    assert [fault.kind for fault in faults] == ["compile-error"]


def test_crash_of_the_compiler_is_a_refusal_and_others_are_asked_on(asker, faults):
    launch(kernels.crashes, 5)
    launch(kernels.taken, 5, 16)
    crashed, taken = settled(asker)
    assert (crashed.verdict, taken.verdict) == ("refuses", "takes")
    assert [fault.message.rpartition(": ")[2] for fault in faults] == [
        "its compiler crashed (SIGSEGV)"
    ]


def test_a_process_that_ends_too_often_is_not_started_again(asker):
    for n in range(6):
        with KNOBS.scope(debug=bool(n % 2)):
            kernels.crashes.interpret[(1,)](torch.zeros(1), 5, num_warps=1 << n // 2)
    texts = [answer.text for answer in settled(asker)]
    assert texts == ["its compiler crashed (SIGSEGV)"] * 4 + ["its process ended too often"] * 2


@pytest.mark.parametrize("asker", [1], indirect=True)
def test_signature_that_takes_too_long_is_undecided(asker, faults):
    launch(kernels.takes_forever, 5)
    launch(kernels.taken, 5, 16)
    slow, taken = settled(asker)
    assert (slow.verdict, slow.text, taken.verdict) == ("undecided", "no answer in 1 s", "takes")
    assert faults == []


def test_end_waits_no_longer_than_it_may_and_says_what_is_missing(asker, capsys):
    launch(kernels.takes_forever, 5)
    asker.conclude(0.2)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "tkdebug: waiting for Triton's answer about 1 signature; Ctrl-C goes on without",
        "tkdebug: Triton 3.9.0, asked about 1 signature for sm_90: takes 0, refuses 0, "
        "no answer in time: 1",
    ]
    assert asker.answers == []


def test_summary_counts_and_names_why_some_are_undecided(asker, capsys):
    launch(kernels.taken, 5, 16)
    launch(kernels.refused, 5)
    launch(kernels.reads_what_cannot_be_sent, 5)
    settled(asker)
    capsys.readouterr()
    asker.conclude()
    assert capsys.readouterr().err.splitlines() == [
        "tkdebug: Triton 3.9.0, asked about 3 signatures for sm_90: takes 1, refuses 1, "
        "not asked or undecided: 1",
        "tkdebug:   1 undecided: `x` (object) cannot be sent to it",
    ]


def test_value_that_cannot_be_sent_decides_nothing_unless_triton_takes_it(asker, faults):
    launch(kernels.reads_what_cannot_be_sent, 5)
    launch(kernels.reads_what_cannot_be_sent_and_is_taken, 5)
    assert [answer.verdict for answer in settled(asker)] == ["undecided", "takes"]
    assert faults == []


def test_class_that_a_kernel_reads_is_sent_by_its_name(asker, faults):
    """Triton refuses any class of a script's, so its refusal decides."""
    launch(kernels.reads_a_class, 5)
    (answer,) = settled(asker)
    assert answer.verdict == "refuses"
    assert [fault.kind for fault in faults] == ["triton-refuses"]


def test_kernels_of_another_version_are_not_asked_about(asker):
    with KNOBS.scope(triton_version="3.6"):
        launch(kernels.taken, 5, 16)
    (answer,) = settled(asker)
    assert (answer.verdict, answer.text) == ("undecided", "it is compiled as of Triton 3.6")


def test_configurations_that_a_tuner_of_triton_skips_are_no_finding(made_up, faults):
    init = made_up / "triton" / "__init__.py"
    init.write_text(init.read_text().replace("CompilationError", "CompileTimeAssertionFailure"))
    asker = TritonAsker(sys.executable, "3.9.0", 90)
    tuned = tkdebug.autotune([tkdebug.Config({}, num_warps=n) for n in (1, 2)], key=["n"])
    for _ in asked_by(asker):
        launch(kernels.refused, 5)
        tuned(kernels.refused).interpret[(1,)](torch.zeros(1), 5)
        verdicts = [answer.verdict for answer in settled(asker)]
    assert verdicts == ["refuses", "undecided"]
    assert len(faults) == 1


def test_question_has_types_constants_alignment_options_and_names(made_up, asker, monkeypatch):
    seen = made_up / "seen.jsonl"
    monkeypatch.setenv("MADE_UP_SEEN", str(seen))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("MLIR_ENABLE_DUMP", "1")
    launch(kernels.taken, 32, 16, num_warps=8)
    launch(kernels.closed_over(tl.constexpr(7)), 5)
    settled(asker)
    taken, closure = map(json.loads, seen.read_text().splitlines())
    assert taken["signature"] == {"p": "*i32", "n": "i32", "BLOCK": "constexpr"}
    assert taken["constants"] == [[[2], "16"]]
    assert [[1], [["tt.divisibility", 16]]] in taken["attrs"]
    assert (taken["options"], taken["arch"]) == ({"num_warps": 8}, 90)
    assert taken["names"]["FACTOR"] == "constexpr[3]"
    assert "module 'triton.language'" in taken["names"]["tl"]
    assert taken["src"] == kernels.taken.src
    assert closure["names"]["value"] == "constexpr[7]"
    ours = [name for name in taken["environment"] if name.startswith("TKDEBUG")]
    assert not {"TRITON_INTERPRET", "MLIR_ENABLE_DUMP", *ours} & set(taken["environment"])
    assert ours == []


def test_parameters_hide_the_names_around_the_kernel():
    asked = question_of(kernels.takes_a_parameter_called_x.warmup(torch.int32, 5, grid=(1,)).src)
    assert (asked.unsent, list(asked.data["functions"][0]["names"])) == ([], ["tl"])


def test_values_are_sent_by_what_they_are():
    def sent(value):
        @tkdebug.jit
        def kernel(p, C: tl.constexpr):
            tl.store(p, 0)

        src = kernel.warmup(torch.int32, value, grid=(1,)).src
        asked = question_of(src)
        (((path, described),), unsent) = asked.data["constants"], asked.unsent
        assert path == (1,)
        json.dumps(described)
        return described, unsent

    assert sent(2.5) == (2.5, [])
    assert sent(None) == (None, [])
    assert sent((1, "a")) == ({"tuple": [1, "a"]}, [])
    assert sent(tl.float32) == ({"public": ["triton.language", "float32"]}, [])
    assert sent(tl.cdiv) == ({"public": ["triton.language", "cdiv"]}, [])
    assert sent(kernels.Pair(1, 2)) == ({"named": ["Pair", ("first", "second"), [1, 2]]}, [])
    assert sent(kernels.Pair) == ({"named class": ["Pair", ["first", "second"]]}, [])
    assert sent(kernels.helper) == ({"function": 1}, [])
    assert sent(Ellipsis) == ({"unsent": "ellipsis"}, ["a constant (ellipsis)"])


def test_a_python_is_not_asked_for_modules_of_the_current_folder(tmp_path, made_up, monkeypatch):
    folder = tmp_path / "current" / "triton"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text('__version__ = "2.1.0"')
    monkeypatch.chdir(folder.parent)
    assert triton_of(sys.executable, "--ask-triton")[1].version == "3.9.0"


def test_option_is_about_a_python_that_has_triton(tmp_path, made_up, monkeypatch):
    path, found = triton_of(sys.executable, "--ask-triton")
    assert (path, found.version) == (sys.executable, "3.9.0")
    with pytest.raises(UsageError, match="no such program; give a Python that has Triton"):
        triton_of("no-such-python", "--ask-triton")
    init = made_up / "triton" / "__init__.py"
    init.write_text('__version__ = "2.1.0"')
    with pytest.raises(UsageError, match=r"Triton 2\.1\.0 is installed; expected 3\.6 to 3\.9"):
        triton_of(sys.executable, "--ask-triton")
    (made_up / "triton" / "_C" / "libtriton.so").unlink()
    with pytest.raises(UsageError, match="is not whole"):
        triton_of(sys.executable, "--ask-triton")
    monkeypatch.setenv("PYTHONPATH", "")
    with pytest.raises(UsageError, match=r"it has no Triton; .* -m pip install triton"):
        triton_of(sys.executable, "--ask-triton")


def test_triton_that_does_not_import_is_said_once_and_nothing_is_found(made_up, asker, faults):
    (made_up / "triton" / "language.py").write_text("import no_such_module_of_triton")
    launch(kernels.refused, 5)
    (answer,) = settled(asker)
    assert answer.verdict == "undecided"
    assert "cannot import triton: ModuleNotFoundError" in answer.text
    assert faults == []


SCRIPT = """
import torch, triton, triton.language as tl

@triton.jit
def refused(p, n):
    tl.store(p, n)  # REFUSED

def test_refused():
    refused[(1,)](torch.zeros(1, device="cuda"), 5)

if __name__ == "__main__":
    test_refused()
"""


def tkdebug_run(folder, *options):
    words = ["run", "--no-tui", "--mode", "interpret", *options, "script.py"]
    return run_module("tkdebug", *words, cwd=folder, env=dict(os.environ))


@pytest.fixture
def folder(made_up, monkeypatch):
    """A folder with the script, for processes that find this tkdebug and the made-up Triton."""
    (made_up / "script.py").write_text(SCRIPT)
    root = str(Path(tkdebug.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(made_up), root]))
    return made_up


def test_run_asks_where_that_is_asked_for(folder):
    assert tkdebug_run(folder).returncode == 0
    asked = ("--ask-triton", sys.executable, "--target", "sm_80")
    done = tkdebug_run(folder, *asked, "--report", "out.json")
    assert done.returncode == 3
    assert "script.py:6: triton-refuses in refused: Triton 3.9.0 for sm_80 refuses" in done.stderr
    assert "asked about 1 signature for sm_80: takes 0, refuses 1\n" in done.stderr
    (fault,) = json.loads((folder / "out.json").read_text())["faults"]
    assert (fault["kind"], fault["line"]) == ("triton-refuses", 6)
    assert "no REFUSED" in fault["message"]


def test_comment_ignores_what_triton_refuses(folder):
    script = folder / "script.py"
    script.write_text(SCRIPT.replace("# REFUSED", "# tkdebug: ignore[triton-refuses] REFUSED"))
    done = tkdebug_run(folder, "--ask-triton", sys.executable)
    assert (done.returncode, "triton-refuses in" in done.stderr) == (0, False)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--ask-triton", "no-such-python"), "--ask-triton no-such-python: no such program"),
        (("--ask-triton", sys.executable, "--triton", "3.6"), "it has Triton 3.9.0, and kernels"),
        (("--ask-triton", sys.executable, "--compiler", "triton"), "--mode interpret is about"),
    ],
)
def test_mistakes_are_said_before_the_script_runs(folder, options, line):
    done = tkdebug_run(folder, *options)
    assert done.returncode == 2
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_plugin_fails_a_test_whose_kernel_triton_refuses(folder):
    words = ["-q", "-c", os.devnull, "-p", "tkdebug.pytest_plugin", "-p", "no:cacheprovider"]
    words += ["--tkdebug-mode", "interpret", "script.py"]
    variables = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    for asked, status in ((), 0), (("--tkdebug-ask-triton", sys.executable), 1):
        done = run_module("pytest", *words, *asked, cwd=folder, env=variables)
        assert done.returncode == status, done.stdout
    assert "script.py:6: triton-refuses in refused" in done.stdout


@needs_triton
@pytest.mark.parametrize(
    ("kernel", "verdict"),
    [(kernels.taken, "takes"), (kernels.calls, "takes"), (kernels.refused, "takes")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_real_triton_compiles(kernel, verdict):
    asker, end = asking(REAL)
    arguments = (5, 16) if kernel is kernels.taken else (5,)
    try:
        launch(kernel, *arguments)
        (answer,) = settled(asker)
    finally:
        end()
    assert (answer.verdict, answer.text) == (verdict, "")


@needs_triton
def test_real_triton_refuses_a_class_of_a_script(faults):
    _, end = asking(REAL)
    launch(kernels.reads_a_class, 5)
    end()
    (fault,) = faults
    assert "Cannot access global variable Settings" in fault.message


@tkdebug.jit
def rebinds(p, s, n):
    for i in range(n):
        tl.store(p + i, s)
        s = n


@needs_triton
def test_real_triton_refuses_what_is_noted(faults):
    asker, end = asking(REAL)
    try:
        with pytest.warns(UserWarning, match="Triton refuses to re-bind `s`"):
            launch(rebinds, 1, 4)
        launch(rebinds, 2, 4)
        settled(asker)
    finally:
        end()
    (fault,) = faults
    assert fault.line == line_of(rebinds, "for i in")
    assert "Loop carried variable s changed type" in fault.message
