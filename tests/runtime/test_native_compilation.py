"""Kernels compiled to cubins without a GPU: their stages, dumped, replaced and reported."""

import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.errors import CompileError, UnsupportedError
from tkdebug.knobs import scope
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.errors import MissingArtifactError, OutOfResources
from tkdebug.runtime.launch.native_kernel import NativeKernel


@tkdebug.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


@pytest.fixture(autouse=True)
def native(tmp_path):
    add.kernels.clear()
    with tkdebug.mode("native"), scope(cache_dir=tmp_path / "cache"):
        yield
    add.kernels.clear()


def compile_add(**options):
    return add.warmup(*[torch.float32] * 3, 4096, BLOCK=1024, grid=(4,), **options)


def test_stages_by_either_name():
    kernel = compile_add(num_warps=8)
    assert isinstance(kernel, NativeKernel)
    assert list(kernel.asm) == ["source", "ttir", "ttgir", "llir", "ptx", "cubin", "sass"]
    assert kernel.asm["tile-ir"] == kernel.asm["ttir"]
    assert "tt.load" in kernel.asm["ttir"]
    assert "linear" in kernel.asm["gpu-ir"]
    assert "define" in kernel.asm["llvm-ir"]
    assert ".maxntid 256" in kernel.asm["ptx"] or ".reqntid 256" in kernel.asm["ptx"]
    assert kernel.asm["cubin"][:4] == b"\x7fELF"
    with pytest.raises(MissingArtifactError, match="no stage 'hsaco'"):
        kernel.asm["hsaco"]


@tkdebug.jit
def multiply(x_ptr, n, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    total = tl.zeros((SIZE, SIZE), tl.float32)
    for step in range(n):
        tile = tl.load(x_ptr + step * SIZE * SIZE + at)
        total = tl.dot(tile, tile, total)
    tl.store(x_ptr + at, total)


@pytest.mark.parametrize("stages", [1, 3])
def test_kernel_that_needs_too_much_names_its_line_and_what_to_lower(stages):
    with pytest.raises(OutOfResources) as raised:
        multiply.warmup(torch.float32, 4, SIZE=512, grid=(1,), arch="sm_80", num_stages=stages)
    place, _, rest = str(raised.value).partition(": out of resource: shared memory, Required: ")
    definition = multiply.kernel_source.definition
    assert place.endswith(f"test_native_compilation.py:{definition.lineno}")
    required, _, rest = rest.partition(", Hardware limit: 166912; ")
    # Loops get buffers for as many stages as fit, so fewer stages would not help.
    assert int(required) == 1 << 20
    assert rest == "lower the blocks (SIZE=512)\n    def multiply(x_ptr, n, SIZE: tl.constexpr):"


def test_figures_are_real():
    kernel = compile_add()
    assert 8 <= kernel.n_regs <= 64
    assert kernel.n_spills == 0
    assert kernel.metadata.shared == 0
    assert kernel.metadata.target.arch == 90
    assert kernel.n_max_threads == 128


def test_sass_is_disassembled_when_asked_for():
    from tkdebug.linemap.nvidia.tools import find_nvdisasm

    if find_nvdisasm() is None:
        pytest.skip("nvdisasm is not installed")
    assert "LDG.E.128" in compile_add().asm["sass"]


def test_alignment_widens_accesses():
    assert "ld.global.v4" in compile_add().asm["ptx"]
    add.kernels.clear()
    kernel = add.warmup(*[torch.float32] * 3, 4095, BLOCK=1024, grid=(4,))
    assert "ld.global.v4" not in kernel.asm["ptx"]


def test_architecture_by_option():
    assert ".target sm_80" in compile_add(arch="sm80").asm["ptx"]
    with pytest.raises(UnsupportedError, match=r"compute capability 7\.0"):
        compile_add(arch="sm70")


def test_registers_by_option():
    assert compile_add(maxnreg=32).n_regs <= 32


def test_hooks_hear_of_all_stages():
    events = []
    hook = Hook(compiled=events.append)
    HOOKS.add(hook)
    try:
        compile_add()
    finally:
        HOOKS.remove(hook)
    (event,) = events
    stages = list(event.artifacts)
    assert stages[:2] == ["source", "tile-ir"]
    assert any(stage.startswith("gpu-ir after ") for stage in stages)
    assert stages[-2:] == ["llvm-ir", "ptx"]
    assert not event.cache_hit
    ptx = event.artifacts["ptx"].splitlines()
    loads = [number for number, text in enumerate(ptx, 1) if "ld.global" in text]
    lines = {event.op_lines["ptx"][number][-1].line for number in loads}
    first = add.starting_line_number
    assert lines == {first + 4, first + 5}


def test_code_generation_is_spared_the_second_time():
    events = []
    hook = Hook(compiled=events.append)
    HOOKS.add(hook)
    try:
        compile_add()
        add.kernels.clear()
        compile_add()
    finally:
        HOOKS.remove(hook)
    assert [event.cache_hit for event in events] == [False, True]


def test_dump_writes_every_stage(tmp_path):
    with scope(dump_dir=tmp_path / "dump"):
        kernel = compile_add()
    (folder,) = (tmp_path / "dump").iterdir()
    files = {path.name for path in folder.iterdir()}
    wanted = {
        "source.py",
        "tile-ir.mlir",
        "gpu-ir.mlir",
        "llvm-ir.ll",
        "kernel.ptx",
        "kernel.cubin",
    }
    assert wanted <= files
    assert any(name.startswith("gpu-ir-after-") for name in files)
    assert (folder / "kernel.cubin").read_bytes() == kernel.asm["cubin"]


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("tile-ir.mlir", "arith.addf", "arith.subf"),
        ("llvm-ir.ll", "fadd", "fsub"),
        ("kernel.ptx", "add.f32", "sub.f32"),
    ],
)
def test_edited_stages_take_their_place(tmp_path, file, old, new):
    with scope(dump_dir=tmp_path):
        before = compile_add()
    (folder,) = tmp_path.glob("add-*")
    for path in folder.iterdir():
        if path.name != file:
            path.unlink()
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    add.kernels.clear()
    with scope(override_dir=tmp_path):
        after = compile_add()
    assert "sub.f32" in after.asm["ptx"] or "sub.rn.f32" in after.asm["ptx"]
    assert after.asm["cubin"] != before.asm["cubin"]


def test_edited_cubin_takes_its_place(tmp_path):
    with scope(dump_dir=tmp_path):
        compile_add()
    (folder,) = tmp_path.glob("add-*")
    for path in folder.iterdir():
        path.unlink()
    (folder / "kernel.cubin").write_bytes(b"\x7fELF edited")
    add.kernels.clear()
    with scope(override_dir=tmp_path):
        assert compile_add().asm["cubin"] == b"\x7fELF edited"
    add.kernels.clear()
    (folder / "gpu-ir.mlir").write_text("")
    with scope(override_dir=tmp_path), pytest.raises(UnsupportedError, match="GPU IR cannot be"):
        compile_add()


def test_load_hooks_are_called_around_loading(monkeypatch):
    from tkdebug.compat.triton_api import knobs
    from tkdebug.runtime.cuda import device, launcher

    monkeypatch.setattr(device, "require_device", lambda: None)
    monkeypatch.setattr(device, "device", lambda index: None)
    loaded = device.LoadedKernel(5, 6, 20, 0, 128)
    monkeypatch.setattr(device, "load_kernel", lambda *arguments: loaded)
    monkeypatch.setattr(launcher, "launch_function", lambda: lambda *arguments: 0)
    seen = []
    before, after = knobs._LOAD_START, knobs._LOAD_END

    def note(*arguments):
        seen.append(arguments)

    before.add(note)
    after.add(note)
    try:
        kernel = compile_add()
        kernel._init_handles()
        kernel._init_handles()
    finally:
        before.remove(note)
        after.remove(note)
    reported = ("add", {}, kernel.hash)
    assert seen == [(None, None, *reported), (5, 6, *reported)]
    assert (kernel.n_regs, kernel.n_max_threads) == (20, 128)
    add.kernels.clear()
    compile_add()._init_handles()
    assert len(seen) == 2


@tkdebug.jit
def malformed(x_ptr):
    x = tl.load(x_ptr)
    y = tl.inline_asm_elementwise("nonsense $0, $1;", "=r,r", [x], tl.int32, True, 1)
    tl.store(x_ptr, y)


def test_malformed_assembly_is_a_compile_error_and_a_fault():
    faults = []
    hook = Hook(fault=faults.append)
    HOOKS.add(hook)
    try:
        with pytest.raises(CompileError) as caught:
            malformed.warmup(torch.int32, grid=(1,))
    finally:
        HOOKS.remove(hook)
    assert caught.value.frames[-1].line == malformed.starting_line_number + 3
    assert faults[0].kind == "compile-error"


@tkdebug.jit
def scale_and_shift(x, n):
    i = tl.arange(0, 128)
    tl.store(x + i, tl.load(x + i) * 1.5 + 1.0)


@tkdebug.jit
def powers(x, n):
    i = tl.arange(0, 128)
    tl.store(x + i, tl.rsqrt(tl.sqrt(tl.exp2(tl.load(x + i)))))


@tkdebug.jit
def count_to(x, n):
    for i in tl.range(0, n, disable_licm=True):
        tl.atomic_add(x, i * (n * 3))


@tkdebug.jit
def count_while(x, n):
    i = 0
    while tl.condition(i < n, disable_licm=True):
        i += 1
        tl.atomic_add(x, i * (n * 3))


@tkdebug.jit
def count_plainly(x, n):
    i = 0
    while tl.condition(i < n):
        i += 1
        tl.atomic_add(x, i * (n * 3))


def compiled(kernel, **options):
    kernel.kernels.clear()
    return kernel.warmup(torch.float32, 4096, grid=(1,), **options)


@pytest.mark.parametrize("by_knob", [False, True])
@pytest.mark.parametrize("fuses", [False, True])
def test_fp_fusion(fuses, by_knob):
    with scope(default_fp_fusion=fuses if by_knob else not fuses):
        options = {} if by_knob else {"enable_fp_fusion": fuses}
        ptx = compiled(scale_and_shift, **options).asm["ptx"]
    assert ("fma.rn.f32" in ptx) is fuses
    assert ("mul" in ptx and "add" in ptx) or fuses


@pytest.mark.parametrize("flushes", [False, True])
def test_subnormal_numbers_are_flushed_unless_it_is_asked(flushes):
    ptx = compiled(powers, enable_reflect_ftz=flushes).asm["ptx"]
    for name in ("ex2", "sqrt", "rsqrt"):
        assert (f"\t{name}.approx.ftz.f32" in ptx) is flushes
        assert (f"\t{name}.approx.f32" in ptx) is not flushes


@pytest.mark.parametrize("by_knob", [False, True])
def test_architecture_of_a_launch(by_knob):
    with scope(override_arch="sm80" if by_knob else None):
        kernel = compiled(scale_and_shift, **({} if by_knob else {"arch": "sm80"}))
    assert ".target sm_80" in kernel.asm["ptx"]
    assert kernel.metadata.target.arch == 80


def test_clusters_are_refused_where_there_are_none():
    with pytest.raises(ValueError, match=r"num_ctas > 1 requires NVIDIA SM90\+ \(Hopper\)"):
        compiled(scale_and_shift, arch="sm80", num_ctas=2)


@pytest.mark.parametrize("kernel", [count_to, count_while, count_plainly])
def test_loop_that_keeps_its_invariants(kernel):
    stages = compiled(kernel).asm
    keeps = kernel is not count_plainly
    assert ("llvm.licm.disable" in stages["llvm-ir"]) is keeps
    before_loop = stages["ttir"].partition("scf.")[0]
    assert ("arith.muli %n" in before_loop) is not keeps
