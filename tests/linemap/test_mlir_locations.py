"""Places of the lines of MLIR and PTX that another compiler printed."""

from tkdebug.errors import Frame
from tkdebug.linemap.mlir_locations import mlir_frames, ptx_frames

SOURCE = """\
def helper(x):
    return x * 2


@jit
def add(X):
    y = helper(X)
    store(y)
"""
MLIR = """\
#loc = loc("{file}":5:0)
#loc1 = loc(unknown)
module {{
  tt.func public @add(%X: !tt.ptr<f32> loc("X"(#loc))) {{
    %c = arith.constant 2 : i32 loc(#loc1)
    %y = arith.mulf %X, %c : f32 loc(#loc6)
    tt.store %y : f32 loc(#loc7)
    tt.return loc(#loc8)
  }} loc(#loc)
}} loc(#loc)
#loc2 = loc("{file}":2:11)
#loc3 = loc("{file}":7:8)
#loc4 = loc("y"(#loc3))
#loc6 = loc(callsite(#loc2 at #loc4))
#loc7 = loc(fused[#loc1, #loc3])
#loc8 = loc(callsite(#loc1 at #loc3))
"""
PTX = """\
.visible .entry add(
\t.param .u64 add_param_0
)
{{
\t.reg .b32 \t%r<3>;
\t.loc\t1 5 0
\tld.param.u64 %rd1, [add_param_0];
\t.loc\t1 7 8
\tmov.b32 %r1, 1;
\t.loc\t1 2 11, function_name $L__info_string0, inlined_at 1 7 8
\tmul.lo.s32 %r2, %r1, 2;
$L__func_end0:
\tmov.b32 %r1, 1;
}}
\t.file\t1 "{file}"
"""


def source(tmp_path):
    file = tmp_path / "kernels.py"
    file.write_text(SOURCE)
    return str(file)


def test_places_of_mlir_are_chains_with_the_names_of_functions(tmp_path):
    file = source(tmp_path)
    frames = mlir_frames(MLIR.format(file=file))
    call, callee = Frame(file, 7, "add"), Frame(file, 2, "helper")
    assert frames == {
        6: (call, callee),
        7: (call,),
        8: (call,),
        9: (Frame(file, 5, "add"),),
        10: (Frame(file, 5, "add"),),
    }


def test_places_of_ptx_follow_what_was_inlined(tmp_path):
    file = source(tmp_path)
    frames = ptx_frames(PTX.format(file=file))
    assert frames == {
        7: (Frame(file, 5, "add"),),
        9: (Frame(file, 7, "add"),),
        11: (Frame(file, 7, "add"), Frame(file, 2, "helper")),
    }


def test_places_that_name_each_other_have_none():
    assert mlir_frames("#loc1 = loc(callsite(#loc1 at #loc1))\n  tt.return loc(#loc1)\n") == {}


def test_file_that_is_not_there_names_no_function():
    assert mlir_frames('#loc1 = loc("/nowhere.py":3:1)\n  tt.return loc(#loc1)') == {
        2: (Frame("/nowhere.py", 3, ""),)
    }
