from dataclasses import replace

import tui_sample

from tkdebug.tui.drawing.highlight import highlight_ir, highlight_python, highlight_sass
from tkdebug.tui.kernel.text import first_to_show, load_kernel_text
from tkdebug.tui.session.follow import Follower


def load(session, stage=None):
    snapshot = Follower(session).poll()
    kernel = snapshot.kernels[0]
    return snapshot, load_kernel_text(session, kernel, kernel.file, stage)


def test_kernel_text_ties_source_lines_to_stage_lines(session):
    _, text = load(session)
    assert text.stage == "tile-ir"
    assert text.stage_lines(14) == {2}
    assert text.stage_lines(18) == {12, 13}
    assert text.stage_lines(1) == frozenset()


def test_kernel_text_ties_a_call_and_the_function_called_to_the_same_ops(session):
    _, text = load(session)
    assert text.stage_lines(16) == text.stage_lines(9) == {8, 9, 10}
    assert text.source_lines(10) == (9, 16)


def test_kernel_text_marks_the_faulting_op_and_the_way_there(session):
    snapshot, text = load(session)
    assert text.source_marks(snapshot.faults) == {9: "fault", 16: "call"}
    assert text.stage_marks(snapshot.faults) == {10: "fault"}


def test_kernel_text_falls_back_to_a_stage_that_is_there(session):
    assert load(session, "sass")[1].stage == "tile-ir"
    assert load(session, "gpu-ir")[1].stage == "gpu-ir"


def test_kernel_text_uses_the_kernels_own_source_when_its_file_was_not_recorded(session):
    snapshot = Follower(session).poll()
    kernel = snapshot.kernels[0]

    class WithoutSources:
        def __getattr__(self, name):
            return getattr(session, name)

        def source_text(self, file):
            return None

    text = load_kernel_text(WithoutSources(), kernel, kernel.file, None)
    assert text.source.first_line == 12
    assert text.source.lines[0] == "@triton.jit"
    assert text.source.index(14) == 2


def test_kernel_text_never_reads_files_of_this_machine(session, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    kernel = Follower(session).poll().kernels[0]
    assert load_kernel_text(session, kernel, str(secret), None).source.lines == ()


def test_highlight_python_spans_cover_strings_over_lines():
    lines = ('x = """a', 'b"""', "def f(): # c")
    spans = highlight_python(lines)
    assert {category for begin, _, category in spans[0] if begin >= 4} == {"string"}
    assert {category for _, _, category in spans[1]} == {"string"}
    assert {category for _, _, category in spans[2]} >= {"keyword", "name", "comment"}


def test_highlight_ir_names_ops_and_values():
    (spans,) = highlight_ir(("  %x = tt.load %5 : tensor<4xf32>",))
    line = "  %x = tt.load %5 : tensor<4xf32>"
    found = {(line[a:b], category) for a, b, category in spans}
    assert found >= {("%x", "value"), ("tt.load", "keyword"), ("tensor", "type")}


def test_sample_source_has_the_lines_that_the_sample_names():
    assert "tl.load(pointer" in tui_sample.SOURCE.split("\n")[8]


def test_kernel_text_marks_just_the_op_of_a_fault(session):
    snapshot, text = load(session)
    (group,) = snapshot.faults
    # Three lines of the stage are of the faulting line; the fault names the op of one.
    of_op = replace(text, op_ids={8: group.first.event.op_id, 9: 70, 10: 71})
    assert of_op.stage_marks(snapshot.faults) == {8: "fault"}
    elsewhere = replace(text, op_ids={2: group.first.event.op_id})
    assert elsewhere.stage_marks(snapshot.faults) == {10: "fault"}


def test_highlight_sass_tells_addresses_guards_instructions_registers_and_constants():
    line = "/*00a0*/  @!P1 LDG.E.64 R4, desc[UR4][R2.64+0x10]  // last"
    (spans,) = highlight_sass((line,))
    assert [(line[begin:end], category) for begin, end, category in spans] == [
        ("/*00a0*/", "comment"),
        ("@!P1", "type"),
        ("LDG.E.64", "keyword"),
        ("R4", "value"),
        ("UR4", "value"),
        ("R2.64", "value"),
        ("0x10", "number"),
        ("// last", "comment"),
    ]


def test_kernel_with_the_most_stages_is_shown_first(session):
    (native,) = session.kernels()
    interpreted = replace(native, hash="h-interpreted", stages=("tile-ir",))
    assert first_to_show([interpreted, native]) is native
    assert first_to_show([interpreted]) is interpreted
