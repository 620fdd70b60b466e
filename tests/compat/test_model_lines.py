"""Lines of the model for faults in generated kernels, read off comments of generated code."""

from types import SimpleNamespace

import pytest

from tkdebug.compat.inductor.model_lines import at_model_line, launched_from, with_origins
from tkdebug.errors import Frame
from tkdebug.records.events import Fault

KERNEL = """\
def triton_poi_fused(in_ptr0, out_ptr0):
    tmp1 = tmp0 - tmp2
    tmp3 = tl_math.log(tmp1)
    tmp4 = tmp3 + tmp5
"""


def node(op, line):
    trace = (
        f'  File "/m/outer.py", line 1, in run\n    f()\n  File "/m/model.py", line {line}, in f\n'
    )
    return SimpleNamespace(meta={"stack_trace": trace}, target=SimpleNamespace(_opname=op))


@pytest.fixture
def generated(tmp_path):
    file = tmp_path / "generated.py"
    nodes = [node("sub", 4), node("sub", 9), node("log", 5), node("log", 5), node("mul", 7)]
    file.write_text(with_origins(KERNEL, nodes))
    return str(file)


def fault_at(file, line, hint=""):
    return Fault(kind="nan", kernel="k", frames=(Frame(file, line, "k"),), message="m", hint=hint)


def test_an_op_of_one_line_is_there(generated):
    refined = at_model_line(fault_at(generated, 3, "guard it"))
    assert refined.frames == (Frame("/m/model.py", 5, "f"), Frame(generated, 3, "k"))
    assert refined.hint == "the model's line: model.py:5 (aten.log); guard it"


def test_an_op_of_several_lines_names_them_all(generated):
    refined = at_model_line(fault_at(generated, 2))
    assert refined.frames == (Frame(generated, 2, "k"),)
    assert refined.hint == "one of the model's lines: model.py:4 (aten.sub), model.py:9 (aten.sub)"


def test_a_line_of_no_known_op_names_those_of_the_kernel(generated):
    refined = at_model_line(fault_at(generated, 4))
    assert len(refined.frames) == 1
    assert refined.hint.startswith("one of the model's lines: model.py:4 (aten.sub), model.py:5")


def test_other_kernels_are_left_alone(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text(KERNEL)
    fault = fault_at(str(file), 3)
    assert at_model_line(fault) is fault


def test_a_kernel_of_the_users_is_launched_from_its_comment(tmp_path):
    wrapper = tmp_path / "wrapper.py"
    wrapper.write_text(
        "# of /m/model.py:3 in f (other)\nother.run(1)\n"
        "# of /m/model.py:8 in f (kernel)\nstream = 0\nkernel.run(1)\nthird.run(1)\n"
    )

    def launched(line):
        frame = SimpleNamespace(f_code=SimpleNamespace(co_filename=str(wrapper)), f_lineno=line)
        with launched_from(frame):
            return at_model_line(fault_at("/m/kernel.py", 20, "guard it"))

    compiled, plain = launched(5), launched(6)
    assert compiled.frames == (Frame("/m/model.py", 8, "f"), Frame("/m/kernel.py", 20, "k"))
    assert compiled.hint == "guard it; torch.compile's code launches it"
    assert plain == fault_at("/m/kernel.py", 20, "guard it")
