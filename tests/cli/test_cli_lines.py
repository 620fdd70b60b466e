"""`tkdebug lines` on scripts, sessions and cubins; needs no GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from answer_schemas import valid
from cli_scripts import tkdebug
from native_support import needs_codegen, needs_nvdisasm
from warm_python import run_python

from tkdebug.cli.command_line import parse
from tkdebug.cli.line_answers.formats import render_text
from tkdebug.cli.line_answers.kernel_lines import LinesQuery, of_session
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.errors import Frame
from tkdebug.instrument.session import Session
from tkdebug.knobs import KNOBS
from tkdebug.linemap.line_table import AssemblerNote
from tkdebug.linemap.line_table_data import from_data
from tkdebug.linemap.parts import LocalFunction

CUBIN = Path(__file__).parents[1] / "golden" / "cubins" / "upstream_3_6_sm80.cubin"
SCRIPT = """\
import torch
import triton
import triton.language as tl


@triton.jit
def root(x):
    return tl.sqrt(x)


@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(out_ptr + offs, root(x), mask=offs < n)


@triton.jit
def fill(out_ptr, BLOCK: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, BLOCK), 1.0)


x = torch.rand(1024, device="cuda")
out = torch.empty_like(x)
scale[(4,)](x, out, 1024, BLOCK=256)
fill[(1,)](out, BLOCK=1024)
print("the script says this")
"""
LOAD_LINE, ROOT_LINE, STORE_LINE = 14, 8, 15
pytestmark = [needs_codegen, needs_nvdisasm]


@pytest.fixture(scope="module")
def script(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("lines") / "kernels.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture(scope="module")
def session(script: Path) -> Path:
    """A recorded run whose kernels were compiled natively."""
    path = script.with_name("run.tkd")
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tkdebug.cli.command_line import parse\n"
        "from tkdebug.cli.runs.compiled_run import AskedRun, _record\n"
        "from tkdebug.cli.script.execution import find_program\n"
        "asked = AskedRun.of(parse(['lines', sys.argv[1]])[1])\n"
        "_record(find_program(sys.argv[1], (), False), Path(sys.argv[2]), 'sm_90a', asked)\n"
    )
    done = run_python("-c", code, script, path)
    assert done.returncode == 0, done.stderr
    return path


@pytest.mark.parametrize("command", ["lines", "passes"])
def test_place_of_a_script_is_its_line(command, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("")
    _, read = parse([command, f"{script}:24"])
    assert (read.script.target, read.line) == (str(script), "24")
    odd = tmp_path / "odd.py:24"
    odd.write_text("")
    for words in ([str(odd)], ["--line", "3", f"{script}:24"], ["-m", "a.py:24"]):
        assert parse([command, *words])[1].script.target == words[-1]


def test_script_is_run_and_its_source_annotated(script: Path) -> None:
    done = tkdebug("lines", script, cwd=script.parent, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "the script says this" in done.stderr
    assert "the script says this" not in done.stdout
    assert "scale for sm_90a  kernels.py:11" in done.stdout
    load = next(line for line in done.stdout.splitlines() if "x = tl.load" in line)
    assert load.split()[0] == str(LOAD_LINE)
    assert "1x64" in load
    assert "occupancy 100 %" in done.stdout
    assert "no spills" in done.stdout
    figures = done.stdout.splitlines()[-2:]
    assert [line.split()[0] for line in figures] == ["scale", "fill"]
    assert all(line.endswith(" %") for line in figures)


def test_session_is_read(session: Path, run_main) -> None:
    status, out, err = run_main("lines", session)
    assert (status, err) == (0, "")
    assert "scale for sm_90a" in out
    assert "fill for sm_90a" in out
    status, out, _ = run_main("lines", "--kernel", "fi*", session)
    assert "fill for sm_90a" in out
    assert "scale for" not in out


def test_notes_of_the_assembler_come_with_their_line(session: Path) -> None:
    with Session.open(session) as opened:
        kernel = next(k for k in of_session(opened) if k.name == "scale")
    chain = kernel.table.ops[max(kernel.table.ops)].chains[0]
    notes = (AssemblerNote("C7510", "serialised", chain), AssemblerNote("C7511", "of no line"))
    noted = replace(kernel, table=replace(kernel.table, notes=notes))
    text = render_text([noted], LinesQuery())
    assert f"kernels.py:{chain[-1].line}: ptxas C7510: serialised\n" in text
    assert "\n  ptxas C7511: of no line\n" in text


def test_code_that_several_lines_call_is_named_with_them(session: Path) -> None:
    with Session.open(session) as opened:
        kernel = next(k for k in of_session(opened) if k.name == "scale")
    chains = tuple((Frame(kernel.file, line, "scale"),) for line in (LOAD_LINE, STORE_LINE))
    function = LocalFunction("$scale$__cuda_division", 0, 0x20, chains)
    code = [
        replace(i, frames=(), op_id=None) if i.address < function.end else i
        for i in kernel.table.instructions
    ]
    table = replace(kernel.table, instructions=tuple(code), local_functions=(function,))
    called = replace(kernel, table=table)
    said = "__cuda_division, called from "
    assert f"  2 of them are of {said}" in render_text([called], LinesQuery())
    text = render_text([called], LinesQuery(sass="0x10"))
    assert f"SASS address 0x10: of no source line: {said}" in text
    places = text.partition(said)[2].splitlines()[0].split(", ")
    assert [Path(place).name for place in places] == ["kernels.py:14", "kernels.py:15"]
    assert "called from" not in render_text([called], LinesQuery(sass="0x20"))


@pytest.mark.parametrize("spilled", [0, 8])
def test_stack_frame_without_spills_is_called_that(session: Path, spilled: int) -> None:
    with Session.open(session) as opened:
        kernel = next(k for k in of_session(opened) if k.name == "scale")
    first, *rest = kernel.table.instructions
    code = (replace(first, text="STL [R1], R5"), *rest)
    resources = replace(kernel.table.resources, stack_bytes=16, spill_store_bytes=spilled)
    table = replace(kernel.table, instructions=code, resources=resources)
    text = render_text([replace(kernel, table=table)], LinesQuery())
    titles = next(line for line in text.splitlines() if line.lstrip().startswith("line "))
    assert ("stack" in titles.split()) != bool(spilled)
    assert ("spill" in titles.split()) == ("value" in titles.split()) == bool(spilled)
    assert ("no spills, a stack frame of 16 bytes" in text) != bool(spilled)


def test_json_has_figures_lines_and_the_table(session: Path, run_main) -> None:
    _, out, _ = run_main("lines", "--format", "json", "--kernel", "scale", session)
    data = valid("lines", out)
    (kernel,) = data["kernels"]
    assert kernel["mapped_percent"] >= 95
    table = from_data(kernel["table"])
    assert len(table.instructions) == kernel["instructions"]
    load = next(line for line in kernel["lines"] if line["line"] == LOAD_LINE)
    assert load["width_bits"] == {"global-load": {"64": 1}}
    assert load["source"].strip().startswith("x = tl.load")
    with Session.open(session) as recorded:
        assert recorded.kernels()[0].name == "scale"


def test_line_shows_every_stage(session: Path, run_main) -> None:
    _, out, _ = run_main("lines", "--line", LOAD_LINE, session)
    heads = [line for line in out.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert [head.split()[0].rstrip(":") for head in heads] == [
        "tile-ir",
        "tile-ir",
        "gpu-ir",
        "llvm-ir",
        "ptx",
        "sass",
    ]
    assert "tt.load" in out
    assert "ld.global" in out
    assert "LDG.E.64" in out


def test_line_of_another_file_is_named_with_it(session: Path, run_main) -> None:
    status, out, _ = run_main("lines", "--line", f"kernels.py:{ROOT_LINE}", session)
    assert status == 0
    assert "MUFU" in out
    assert "called from" in out


def test_ptx_line_and_sass_address_lead_back(session: Path, run_main) -> None:
    _, out, _ = run_main("lines", "--kernel", "scale", "--format", "json", session)
    table = from_data(json.loads(out)["kernels"][0]["table"])
    root = next(i for i in table.instructions if i.text.startswith("MUFU"))
    for option, value in (("--ptx", root.ptx_line), ("--sass", f"0x{root.address:x}")):
        _, out, _ = run_main("lines", "--kernel", "scale", option, value, session)
        assert f"kernels.py:{ROOT_LINE}:12 in root" in out
        assert f"called from {session.parent / 'kernels.py'}:{STORE_LINE} in scale" in out
        assert "math.sqrt" in out
    _, out, _ = run_main(
        "lines", "--kernel", "scale", "--sass", f"{root.address:x}", "--format", "json", session
    )
    (kernel,) = valid("lines", out)["kernels"]
    assert [frame["line"] for frame in kernel["chains"][0]] == [STORE_LINE, ROOT_LINE]
    assert [op["tile_name"] for op in kernel["ops"]] == ["math.sqrt"]
    assert [i["kind"] for i in kernel["sass"]] == ["special"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--kernel", "nothing"), "--kernel nothing: no such kernel; there are scale, fill"),
        (("--kernel", "scal"), "--kernel scal: no such kernel; did you mean scale?"),
        (("--line", "999"), "--line 999: no instruction and no op of scale, fill"),
        (("--line", "999"), "is of that line; scale has lines "),
        (("--line", "x"), "--line x: expected a line number, or file.py:number"),
        (("--ptx", "99999"), "--ptx 99999: no instruction"),
        (("--sass", "0xffff"), "code from 0x0 to 0x"),
        (("--sass", "zz"), "expected a hexadecimal address"),
    ],
)
def test_places_that_are_not_there(session: Path, run_main, words, said: str) -> None:
    status, out, err = run_main("lines", *words, session)
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_cubin_of_upstream_has_what_its_tables_give(run_main) -> None:
    status, out, err = run_main("lines", CUBIN)
    assert (status, err) == (0, "")
    assert "kern for sm_80" in out
    assert "24 SASS instructions, 100.0 % mapped" in out
    assert "limited by warps" in out
    _, out, _ = run_main("lines", "--line", 19, CUBIN)
    assert "LDG.E" in out
    assert "tile-ir" not in out


def test_cubin_that_cannot_be_read_is_one_line(tmp_path: Path, run_main) -> None:
    data = CUBIN.read_bytes()
    cases = {"no.cubin": None, "text.cubin": b"hello" * 40, "short.cubin": data[:3000]}
    for name, content in cases.items():
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        status, out, err = run_main("lines", path)
        assert (status, out) == (2, "")
        assert str(path) in err
        assert err.count("\n") == 1


def test_interpreted_session_says_what_to_do(tmp_path: Path, write_script, run_main) -> None:
    path = tmp_path / "run.tkd"
    run_main("run", "--no-tui", "-o", path, write_script("launch()"))
    status, _, err = run_main("lines", path)
    assert status == 2
    assert "no kernel was compiled natively" in err


@pytest.mark.parametrize("target", ["sm_12", "none"])
def test_unknown_target_is_reported_before_the_script_runs(script: Path, run_main, target) -> None:
    status, out, err = run_main("lines", "--target", target, script)
    assert (status, out) == (2, "")
    assert f"got '{target}', expected {', '.join(TARGETS)}\n" in err
    assert "the script says this" not in err


def test_output_into_a_file(session: Path, run_main, tmp_path: Path) -> None:
    out = tmp_path / "lines.txt"
    assert run_main("lines", "-o", out, session) == (0, "", "")
    assert "scale for sm_90a" in out.read_text()


def test_cubin_that_is_huge_or_empty_is_one_line(tmp_path: Path, run_main) -> None:
    huge = tmp_path / "huge.cubin"
    with huge.open("wb") as file:
        file.truncate(2 << 30)
    empty = tmp_path / "empty.cubin"
    empty.touch()
    status, out, err = run_main("lines", huge)
    assert (status, out) == (2, "")
    assert "has more than the 1024 MiB that are read" in err
    assert run_main("lines", empty) == (2, "", f"tkdebug: {empty}: not a cubin: empty\n")


def test_script_without_kernels_says_so(tmp_path: Path, run_main) -> None:
    script = tmp_path / "nothing.py"
    script.write_text("print(1)")
    for command in ("lines", "passes"):
        status, out, err = run_main(command, script)
        assert (status, out) == (2, "")
        assert f"{script}: it launched no kernel" in err


def test_faults_of_the_run_are_not_passed_over(run_main) -> None:
    example = Path(__file__).parents[2] / "examples" / "missing_mask.py"
    done = tkdebug("lines", "--line", "20", example)
    assert done.returncode == 0
    assert f"tkdebug: 1 fault in this run; `tkdebug run {example}` shows where" in done.stderr


def test_checked_builds_are_shown_beside_bare_ones_where_all_launches_are_checked(script, run_main):
    with KNOBS.scope(check_launches="all"):
        status, out, err = run_main("lines", "--kernel", "scale", script)
    assert status == 0, err
    bare, checked = out.split("scale for sm_90a")[1:]
    assert "checked:" not in bare
    assert "  checked: 2 accesses: 2 tested by tile\n" in checked
