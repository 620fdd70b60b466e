"""`tkdebug passes`: a script, a recorded run, the formats, and what is wrong with a question."""

import html.parser
import json
import os
import re
import sqlite3

import pytest
from answer_schemas import valid

from tkdebug.cli import main
from tkdebug.compiler.passes import TILE_PIPELINE
from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.pipeline import gpu_pipeline
from tkdebug.instrument.renderers.formats import PASSES
from tkdebug.knobs import KNOBS

SCRIPT = """\
import torch
import triton
import triton.language as tl


@triton.jit
def halved(x):
    return x * 0.5


@triton.jit
def row_sum(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    unused = tl.arange(0, 8)
    offs = tl.arange(0, BLOCK)
    total = 0.0
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + start + offs, mask=start + offs < n)
        total += tl.sum(halved(x))
    tl.store(out_ptr, total)


@triton.jit
def copy(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs))


x = torch.ones(300, device="cuda")
out = torch.zeros(256, device="cuda")
row_sum[(1,)](x, out, 300, BLOCK=128)
for block in (128, 256):
    copy[(1,)](x, out, BLOCK=block)
print("said by the script", float(out[0]))
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("passes") / "sums.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture(scope="module")
def session(script):
    path = script.with_name("run.tkd")
    with KNOBS.scope(cross_compile="sm_90a"):
        assert main(["run", "--no-tui", "-o", str(path), str(script)]) == 0
    return path


def line_of(text):
    return SCRIPT.split("\n").index(next(t for t in SCRIPT.split("\n") if text in t)) + 1


def test_passes_of_a_script_lists_tile_and_gpu_passes_and_keeps_its_output_apart(script, run_main):
    status, out, err = run_main("passes", "--kernel", "row_sum", script)
    assert status == 0
    assert "said by the script" in err
    assert "said by the script" not in out
    table = out.split("\n\n")[0]
    names = re.findall(r"^  (\S+)", table, re.MULTILINE)
    gpu_passes = gpu_pipeline(TARGETS["sm_90a"], 3)
    assert names[:3] == ["pass", "front-end", TILE_PIPELINE[0].name]
    assert "assign-layouts" in names
    assert names[-1] == gpu_passes[-1].name
    assert "for sm_90a" in out
    assert "eliminate-dead-code: " in out
    assert "tt.make_range (erase-dead)" in out


def test_passes_without_a_target_are_those_of_tile_ir(script, run_main):
    _, out, _ = run_main("passes", "--target", "none", "--kernel", "row_sum", script)
    assert "canonicalize" in out
    assert "assign-layouts" not in out


def test_passes_of_a_recorded_run_tell_each_specialisation_once(session, run_main):
    status, out, err = run_main("passes", session, "--format", "json")
    assert (status, err) == (0, "")
    data = valid("passes", out)
    assert [k["kernel"] for k in data["kernels"]] == ["row_sum", "copy", "copy"]
    assert all(k["options"]["arch"] == "sm_90a" for k in data["kernels"])
    assert len({k["hash"] for k in data["kernels"]}) == 3
    first = data["kernels"][0]["passes"]
    assert (first[0]["name"], first[0]["before"], first[0]["changes"]) == ("front-end", "", [])
    assert sum(len(p["changes"]) for p in first) > 10
    chosen = data["kernels"][2]["hash"][:12]
    _, out, _ = run_main("passes", session, "--kernel", chosen, "--format", "json")
    assert [k["hash"][:12] for k in json.loads(out)["kernels"]] == [chosen]


def test_one_pass_shows_each_change_with_its_ops(session, run_main):
    _, out, _ = run_main("passes", session, "--kernel", "row_sum", "--pass", "assign-layouts")
    assert re.search(r"= #\d+ .*tt\.load .*#layout\d", out)
    assert re.search(r"#layout\d = #ttg\.linear<", out)
    assert "hoist-loop-invariants" not in out


def test_only_changed_leaves_out_passes_that_did_nothing(session, run_main):
    def passes(*options):
        _, out, _ = run_main("passes", session, "--kernel", "copy", "--format", "json", *options)
        return [p["name"] for p in json.loads(out)["kernels"][0]["passes"]]

    assert len(passes("--only-changed")) < len(passes())
    assert "pipeline-wgmma" not in passes("--only-changed")


def test_diff_of_the_texts(session, run_main):
    _, out, _ = run_main("passes", session, "--kernel", "row_sum", "--diff")
    assert "--- tile-ir\n+++ tile-ir after canonicalize\n@@" in out


def test_line_is_followed_from_source_to_sass(session, run_main):
    number = line_of("tl.load(x_ptr + start")
    _, out, _ = run_main("passes", session, "--line", number, "--kernel", "row_sum")
    assert "x = tl.load(x_ptr + start + offs" in out
    steps = re.findall(r"^(\S.*?): \d+ lines?", out, re.MULTILINE)
    assert steps[0] == "front-end"
    assert steps[-3:] == ["llvm-ir", "ptx", "sass"]
    assert "coalesce-accesses" in steps
    assert re.search(r"LDG", out.split("\nsass:")[1])


def test_line_of_a_device_function_is_followed_by_its_file(session, run_main):
    number = line_of("return x * 0.5")
    _, out, _ = run_main("passes", session, "--line", f"sums.py:{number}", "--format", "json")
    (kernel,) = valid("passes", out)["kernels"]
    assert kernel["kernel"] == "row_sum"
    texts = [line["text"] for line in kernel["life"]["steps"][0]["lines"]]
    assert any("arith.mulf" in text for text in texts)


def test_html_is_one_closed_file_that_escapes_everything(session, run_main, tmp_path):
    page = tmp_path / "passes.html"
    assert run_main("passes", session, "--format", "html", "-o", page)[0] == 0
    text = page.read_text()
    seen = Tags()
    seen.feed(text)
    assert seen.open == []
    assert not seen.names & {"script", "link", "img", "iframe", "object"}
    assert not re.search(r'(?:src|href)="(?!#)|url\(|https?:', text)
    assert "default-src &#x27;none&#x27;" in text or "default-src 'none'" in text
    assert {f"#{id_}" for id_ in seen.ids} >= seen.links
    assert {"#k0c", "#k0s"} <= seen.links
    assert "copy</a> <b>BLOCK=128</b>" in text
    assert "copy</a> <b>BLOCK=256</b>" in text
    assert '<rect width="80"' in text  # the longest pass has the longest bar


class Tags(html.parser.HTMLParser):
    """The tags of a page, and those that were not closed."""

    def __init__(self):
        super().__init__()
        self.open, self.names, self.ids, self.links = [], set(), set(), set()

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        values = dict(attrs)
        assert not [name for name in values if name.startswith("on")]
        self.ids.update([values["id"]] if "id" in values else [])
        self.links.update([values["href"]] if "href" in values else [])
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_hostile_names_in_a_session_do_nothing(session, run_main, tmp_path):
    path = tmp_path / "hostile.tkd"
    path.write_bytes(session.read_bytes())
    evil = "<script>alert(1)</script>\x1b[2J"
    connection = sqlite3.connect(path)
    connection.execute("UPDATE kernels SET name = ?, signature = ?, file = ?", (evil, evil, evil))
    connection.execute("UPDATE passes SET name = ? WHERE number = 1", (evil,))
    connection.execute("UPDATE passes SET error = ? WHERE number = 2", (evil,))
    connection.commit()
    connection.close()
    for format_name in [one.name for one in PASSES]:
        status, out, _ = run_main("passes", path, "--format", format_name)
        assert status == 0
        assert "\x1b" not in out
        assert format_name != "html" or "<script" not in out


@pytest.mark.parametrize(
    ("column", "value"),
    [("rewrites", "[1]"), ("rewrites", "[[1,2,3,4]]"), ("ops", '{"a": []}'),
     ("ops", '{"1": ["x", {}, [], null, 0, [[7, 1]]]}'), ("op_ids", '["x"]'), ("name", None)],
)  # fmt: skip
def test_damaged_passes_are_one_clear_line(session, run_main, tmp_path, column, value):
    path = tmp_path / "damaged.tkd"
    path.write_bytes(session.read_bytes())
    connection = sqlite3.connect(path)
    connection.execute(f"UPDATE passes SET {column} = ? WHERE number = 1", (value,))
    connection.commit()
    connection.close()
    status, out, err = run_main("passes", path)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert "damaged session" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kernel", "nope"], "--kernel nope: no such kernel; there are row_sum, copy"),
        (["--kernel", "row_sums"], "--kernel row_sums: no such kernel; did you mean row_sum?"),
        (["--pass", "nope"], "--pass nope: no such pass; there are front-end, "),
        (["--pass", "canonicalise"], "no such pass; did you mean canonicalize?"),
        (["--line", "1"], "--line 1: no op comes from there; row_sum has ops of lines "),
        (["--line", "x"], "--line x: expected a line number, or file.py:number"),
    ],
)
def test_what_is_not_there_is_answered_with_what_is(session, run_main, options, message):
    status, out, err = run_main("passes", session, *options)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_gpu_pass_of_a_run_without_gpu_says_how_to_record_it(script, run_main, tmp_path):
    path = tmp_path / "run.tkd"
    assert run_main("run", "--no-tui", "-o", path, script)[0] == 0
    status, _, err = run_main("passes", path, "--pass", "assign-layouts")
    assert status == 2
    assert "were interpreted and not compiled further: `tkdebug run --target sm_90a -o " in err


def test_run_with_a_target_records_the_passes_and_sass_for_it(script, run_main, tmp_path):
    path = tmp_path / "run.tkd"
    status, _, err = run_main("run", "--no-tui", "--target", "sm_80", "-o", path, script)
    assert status == 0
    assert f"for sm_80: `tkdebug lines {path}` and `tkdebug passes {path}` show them" in err
    assert KNOBS.cross_compile is None
    assert "TKDEBUG_CROSS_COMPILE" not in os.environ
    out = run_main("passes", path, "--kernel", "copy", "--pass", "assign-layouts")[1]
    assert "for sm_80" in out
    assert "SASS" in run_main("lines", path, "--kernel", "copy")[1]


def test_run_with_a_target_and_no_session_says_what_keeps_what_was_compiled(script, run_main):
    err = run_main("run", "--no-tui", "--target", "sm_90", script)[2]
    assert "for sm_90a: -o FILE keeps them for `tkdebug lines` and `tkdebug passes`\n" in err
    assert "compiled kernel" not in run_main("run", "--no-tui", script)[2]


def test_layouts_are_assigned_to_tiles_and_scalars_are_left_alone(session, run_main):
    out = run_main("passes", session, "--kernel", "row_sum", "--pass", "assign-layouts")[1]
    assert "tt.splat" in out
    assert "arith.addf" not in out


def test_unknown_target_is_refused_before_the_script_runs(script, run_main):
    status, _, err = run_main("passes", "--target", "sm_1", script)
    assert status == 2
    assert "'sm_1'" in err
    assert "said by the script" not in err


def test_kernel_that_fails_halfway_shows_its_passes_until_then(run_main, tmp_path):
    script = tmp_path / "broken.py"
    # An op that code generation refuses, after all passes have run.
    script.write_text(
        "import torch, triton\nimport triton.language as tl\n\n\n@triton.jit\n"
        "def k(x, BLOCK: tl.constexpr):\n"
        "    offs = tl.arange(0, BLOCK)\n"
        '    r = tl.inline_asm_elementwise("no.op $0, $1;", "=r,r", [offs], tl.int32, True, 1)\n'
        "    tl.store(x + offs, r)\n\n\n"
        'x = torch.zeros(16, dtype=torch.int32, device="cuda")\nk[(1,)](x, BLOCK=16)\n'
    )
    status, out, err = run_main("passes", script)
    assert status == 1  # the script's own: its launch fails
    assert "did not compile: " in out
    assert "broken.py" in out
    assert gpu_pipeline(TARGETS["sm_90a"], 3)[-1].name in out
    assert "k for sm_90a" in err


@pytest.mark.parametrize("command", ["passes", "lines"])
def test_output_never_overwrites_what_is_looked_at(session, run_main, command):
    before = session.read_bytes()
    status, out, err = run_main(command, session, "-o", session)
    assert (status, out) == (2, "")
    assert "is what is looked at itself" in err
    assert session.read_bytes() == before


@pytest.mark.parametrize("command", ["passes", "lines"])
def test_options_of_scripts_are_refused_for_a_session(session, run_main, command):
    status, out, err = run_main(command, session, "--target", "sm_80")
    assert (status, out) == (2, "")
    assert f"{session} is a recorded run; this is for scripts only" in err
    status, out, err = run_main(command, session, "--size", "3")
    assert (status, out) == (2, "")
    assert "not understood: --size 3" in err


def test_interrupted_script_ends_with_130_and_says_what_is_missing(script, run_main, tmp_path):
    late = tmp_path / "late.py"
    late.write_text(script.read_text() + "raise KeyboardInterrupt\n")
    early = tmp_path / "early.py"
    early.write_text("raise KeyboardInterrupt\n")
    status, out, err = run_main("passes", "--kernel", "copy", "--target", "none", late)
    assert status == 130
    assert "copy(" in out
    assert f"{late} was interrupted: shown is what was compiled until then" in err
    for command in ("passes", "lines"):
        status, out, err = run_main(command, early)
        assert (status, out) == (130, "")
        assert f"{early}: it was interrupted before it launched a kernel" in err


def test_failed_script_keeps_its_status(script, run_main, tmp_path):
    failing = tmp_path / "failing.py"
    failing.write_text(script.read_text() + "raise SystemExit(7)\n")
    status, out, err = run_main("passes", "--target", "none", failing)
    assert status == 7
    assert "copy(" in out
    assert f"{failing} ended with status 7: shown is what was compiled until then" in err
