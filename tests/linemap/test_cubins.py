from __future__ import annotations

import random
import sys
from contextlib import suppress
from pathlib import Path

import llvm_text
import pytest
from native_support import needs_codegen, needs_libdevice, needs_nvdisasm, places

from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.codegen.generation import generate
from tkdebug.compiler.targets.nvptx.native_code import NativeCode
from tkdebug.errors import Frame, TkError
from tkdebug.knobs import KNOBS
from tkdebug.linemap.nvidia.cubins import CubinError, read_kernels, read_line_info
from tkdebug.linemap.nvidia.ptx_locations import GENERATED_FILE
from tkdebug.linemap.nvidia.unread_code import sass_text

GOLDEN = Path(__file__).parents[1] / "golden" / "cubins"
UPSTREAM = (GOLDEN / "upstream_3_6_sm80.cubin").read_bytes()

KERNEL, DEVICE = "/tmp/kernel.py", "/tmp/device.py"
CHAIN_BODY = """
  %v = load float, ptr addrspace(1) %x, !dbg !10
  %a = call float @__nv_rsqrtf(float %v), !dbg !11
  %b = call float @__nv_rsqrtf(float %a), !dbg !12
  store float %b, ptr addrspace(1) %x, !dbg !13
  ret void, !dbg !14"""
CHAIN = llvm_text.module(CHAIN_BODY, "declare float @__nv_rsqrtf(float)")
# Both calls are of one line of `inner`; the calls of `outer` are on different lines.
LOCATIONS = {
    10: (Frame(KERNEL, 5, "k"),),
    11: (Frame(KERNEL, 6, "k"), Frame(DEVICE, 20, "outer"), Frame(DEVICE, 30, "inner")),
    12: (Frame(KERNEL, 7, "k"), Frame(DEVICE, 20, "outer"), Frame(DEVICE, 30, "inner")),
    13: (Frame(KERNEL, 8, "k"),),
    14: (Frame(KERNEL, 8, "k"),),
}


@pytest.fixture(scope="module", params=["sm_75", "sm_80", "sm_90a", "sm_103a", "sm_120a"])
def chain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> NativeCode:
    with KNOBS.scope(cache_dir=tmp_path_factory.mktemp("cache")):
        return generate(
            CHAIN, "k", TARGETS[request.param], locations=LOCATIONS, entry=(Frame(KERNEL, 4, "k"),)
        )


def check_against_nvdisasm(cubin: bytes) -> None:
    info = read_line_info(cubin)
    by_source = places(sass_text(cubin, ("-c", "-g")))
    assert by_source
    for (function, address), place in by_source.items():
        frames = info[function].frames_at(address)
        assert place == ((frames[-1].file, frames[-1].line) if frames else None)
    for (function, address), place in places(sass_text(cubin, ("-c", "-gp"))).items():
        assert info[function].ptx_line_at(address) == (place[1] if place else None)


def addresses_of(cubin: bytes, opcode: str) -> list[int]:
    sass = sass_text(cubin).splitlines()
    return [int(t.split("*")[1].strip("/"), 16) for t in sass if opcode in t and "/*" in t]


@needs_codegen
@needs_libdevice
@needs_nvdisasm
def test_every_address_is_where_nvdisasm_says(chain: NativeCode) -> None:
    check_against_nvdisasm(chain.cubin)


@needs_nvdisasm
def test_every_address_of_an_upstream_cubin_is_where_nvdisasm_says() -> None:
    check_against_nvdisasm(UPSTREAM)


def test_upstream_cubin_gives_the_lines_of_its_functions() -> None:
    (function,) = read_line_info(UPSTREAM).values()
    source = (GOLDEN / "upstream_kernel.py").read_text().splitlines()
    assert function.name == "kern"
    texts = {source[frames[-1].line - 1].strip() for _, frames in function.source}
    assert "return tl.exp(x) * 2" in texts
    assert "return tl.sqrt(y)" in texts
    assert "x = tl.load(x_ptr + i, mask=i < n)" in texts


@needs_codegen
@needs_libdevice
@needs_nvdisasm
def test_chain_through_two_device_functions_is_whole(chain: NativeCode) -> None:
    info = read_line_info(chain.cubin)["k"]
    ops = {line.line: line.op_id for line in chain.ptx_lines}
    found = addresses_of(chain.cubin, "MUFU.RSQ")
    assert len(found) == 2
    assert info.frames_at(found[0]) == LOCATIONS[11]
    assert [ops[info.ptx_line_at(address) or 0] for address in found] == [11, 12]


@needs_codegen
@needs_libdevice
@needs_nvdisasm
def test_load_and_store_are_of_their_ops(chain: NativeCode) -> None:
    info = read_line_info(chain.cubin)["k"]
    ops = {line.line: line.op_id for line in chain.ptx_lines}
    for opcode, op in (("LDG", 10), ("STG", 13)):
        (address,) = addresses_of(chain.cubin, opcode)
        assert info.frames_at(address) == LOCATIONS[op]
        assert ops[info.ptx_line_at(address) or 0] == op


@needs_codegen
def test_vector_add_maps_to_the_kernel_throughout(tmp_path: Path) -> None:
    locations = {op: (Frame(KERNEL, op, "k"),) for op in llvm_text.VECTOR_ADD_OPS}
    with KNOBS.scope(cache_dir=tmp_path):
        code = generate(llvm_text.VECTOR_ADD, "k", TARGETS["sm_90a"], locations=locations)
    info = read_line_info(code.cubin)["k"]
    lines = {frames[-1].line for _, frames in info.source if frames[-1].file == KERNEL}
    assert {14, 15, 16, 17} <= lines <= set(locations)
    assert all(frames[-1].line > 0 for _, frames in info.source)
    generated = [a for a, frames in info.source if frames[-1].file == GENERATED_FILE]
    assert len(generated) <= 1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not a cubin"),
        (b"hello" * 50, "not a cubin"),
        (UPSTREAM[:40], "not a cubin"),
        (UPSTREAM[:3000], "cut short"),
    ],
)
def test_bytes_that_are_no_cubin_are_one_clear_line(data: bytes, said: str) -> None:
    with pytest.raises(CubinError, match=said) as caught:
        read_line_info(data)
    assert "\n" not in str(caught.value)


def test_program_of_another_machine_is_refused() -> None:
    data = Path(sys.executable).resolve().read_bytes()
    if not data.startswith(b"\x7fELF"):
        pytest.skip("this Python is no ELF file")
    with pytest.raises(CubinError, match="not a cubin: an ELF file for"):
        read_line_info(data)


@needs_codegen
def test_cubin_without_line_info_says_how_to_get_it() -> None:
    from cuda.bindings import nvjitlink

    ptx = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n"
    handle = nvjitlink.create(1, ["-arch=sm_80"])
    nvjitlink.add_data(handle, nvjitlink.InputType.PTX, ptx, len(ptx), "k")
    nvjitlink.complete(handle)
    cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
    nvjitlink.get_linked_cubin(handle, cubin)
    nvjitlink.destroy(handle)
    with pytest.raises(CubinError, match="-lineinfo"):
        read_line_info(bytes(cubin))


def test_damaged_cubins_raise_nothing_else() -> None:
    chance = random.Random(5)
    for _ in range(400):
        data = bytearray(UPSTREAM)
        for _ in range(chance.randint(1, 12)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        cut = chance.choice([len(data), chance.randrange(len(data))])
        with suppress(TkError):
            read_line_info(bytes(data[:cut]))


def patched(old: bytes, new: bytes) -> bytes:
    assert old in UPSTREAM
    return UPSTREAM.replace(old, new)


@pytest.mark.parametrize("size_bytes", [1 << 24, 1 << 30, 1 << 62])
def test_code_larger_than_the_file_is_refused_before_it_is_looked_at(size_bytes: int) -> None:
    data = bytearray(UPSTREAM)
    table, count = (
        int.from_bytes(UPSTREAM[at : at + n], "little") for at, n in ((0x28, 8), (0x3C, 2))
    )
    code = read_line_info(UPSTREAM)["kern"].size_bytes
    headers = (at for at in range(table, table + 64 * count, 64))
    at = next(
        at
        for at in headers
        if data[at + 8] & 4 and data[at + 32 : at + 40] == code.to_bytes(8, "little")
    )
    data[at + 32 : at + 40] = size_bytes.to_bytes(8, "little")
    with pytest.raises(CubinError, match=f"{size_bytes} bytes of code in a file of"):
        read_line_info(bytes(data))


def test_stripped_cubin_says_so() -> None:
    # Under another name the symbol table is not there.
    with pytest.raises(CubinError, match="stripped"):
        read_line_info(patched(b"\0.symtab\0", b"\0.symtax\0"))


def test_cubin_of_an_architecture_before_volta_is_refused_by_name() -> None:
    data = bytearray(UPSTREAM)
    data[0x30] = 61  # e_flags of ELF64
    with pytest.raises(CubinError, match="sm_61"):
        read_line_info(bytes(data))


def test_cubin_says_what_its_kernels_need() -> None:
    kernels = read_kernels(UPSTREAM)
    assert kernels.target == "sm_80"
    kernel = kernels.kernels["kern"]
    assert (kernel.registers, kernel.threads) == (8, 128)
    assert (kernel.shared_bytes, kernel.stack_bytes) == (0, 0)


def test_damaged_cubins_have_no_surprises_for_their_needs() -> None:
    chance = random.Random(6)
    for _ in range(200):
        data = bytearray(UPSTREAM)
        for _ in range(chance.randint(1, 12)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with suppress(TkError):
            read_kernels(bytes(data))


@needs_codegen
@needs_libdevice
def test_own_cubin_says_what_the_assembler_says(chain: NativeCode) -> None:
    (kernel,) = read_kernels(chain.cubin).kernels.values()
    assert kernel.registers == chain.registers
    assert kernel.shared_bytes == chain.shared_bytes
