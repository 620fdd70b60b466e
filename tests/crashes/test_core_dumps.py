"""GPU core dumps read without a GPU: real ones, damaged ones, and what is none."""

import os
import random
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from answer_schemas import valid
from dumps import LINES, dump_bytes

from tkdebug.cli import main
from tkdebug.linemap.nvidia.core_dumps import CoreDumpError, decode_core_dump, read_core_dump
from tkdebug.linemap.nvidia.elf_sections import ET_CORE, chosen_sections, sections
from tkdebug.runtime.cuda.crashes import faults_of

# case -> kind, kernel, program, threads
CASES = {
    "program": ("illegal-address", "one_program", (0, 2, 0), 32),
    "misaligned": ("misaligned", "load_misaligned", (0, 0, 0), 32),
    "trap": ("trap", "trapping", (0, 0, 0), 32),
    # Its checked build keeps data in R1, and the driver speaks of the stack.
    "trap_checked": ("trap", "trapping", (0, 0, 0), 32),
    "assert": ("assert", "asserting", (0, 0, 0), 27),
    "store": ("illegal-address", "store_far", None, 1),
}


@pytest.mark.parametrize("case", CASES)
def test_crash_is_placed(case):
    kind, kernel, program, threads = CASES[case]
    (fault,) = faults_of(decode_core_dump(dump_bytes(case)))
    assert (fault.kind, fault.kernel) == (kind, kernel)
    assert fault.line == LINES[f"crash: {case.removesuffix('_checked')}"]
    assert (fault.program_id, fault.count) == (program, threads)


def test_crash_in_a_device_function_has_its_chain():
    (fault,) = faults_of(decode_core_dump(dump_bytes("chain")))
    expected = ("chain: kernel", "chain: middle", "crash: chain")
    assert [frame.line for frame in fault.frames] == [LINES[name] for name in expected]
    assert [frame.function for frame in fault.frames] == ["chained", "middle", "fetch"]


def test_kernel_of_another_compiler_is_placed_by_its_own_line_table():
    (fault,) = faults_of(decode_core_dump(dump_bytes("upstream_chain")))
    assert fault.kernel == "chained"
    assert fault.line == LINES["crash: chain"]


def test_dump_tells_machine_and_grid():
    dump = decode_core_dump(dump_bytes("program"))
    assert (dump.driver, dump.device, dump.architecture) == ("580.159", "NVIDIA H200", "sm_90")
    (grid,) = dump.grids
    assert (grid.id, grid.size, grid.block_size) == (1, (1, 4, 1), (128, 1, 1))
    # x, o, far
    assert struct.unpack("<QQq", grid.parameters)[2] == -(1 << 38)


def test_exception_is_placed_at_its_own_pc_and_not_at_the_threads():
    dump = decode_core_dump(dump_bytes("program"))
    place = dump.place_of(dump.stops[0].pc)
    assert (place.function, place.offset) == ("one_program", 0xD0)


def test_address_of_no_loaded_code_has_no_place():
    assert decode_core_dump(dump_bytes("trap")).place_of(0x10) is None


def test_block_that_is_not_known_is_said_so():
    (fault,) = faults_of(decode_core_dump(dump_bytes("store")))
    assert "the block is not known" in fault.message


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not a GPU core dump"),
        (b"hello" * 50, "not a GPU core dump"),
        (dump_bytes("trap")[:40], "not a GPU core dump"),
        (dump_bytes("trap")[:3000], "cut short"),
        (dump_bytes("trap")[:-100], "cut short"),
    ],
)
def test_bytes_that_are_no_whole_dump_are_one_clear_line(data, said):
    with pytest.raises(CoreDumpError, match=said) as caught:
        decode_core_dump(data)
    assert "\n" not in str(caught.value)


def test_cubin_is_no_core_dump():
    image = decode_core_dump(dump_bytes("trap")).images[-1][1]
    with pytest.raises(CoreDumpError, match="type 2, expected 190 and 4"):
        decode_core_dump(image)


def section_header(data, type_):
    """Return the offset of the header of the first section of that type."""
    table = struct.unpack_from("<Q", data, 40)[0]
    for index, section in enumerate(sections(data, ET_CORE, "dump")):
        if section.type == 0x8000_0000 + type_:
            return table + 64 * index
    raise AssertionError


@pytest.mark.parametrize(("type_", "table"), [(11, "multiprocessor"), (12, "grid"), (14, "warp")])
def test_rows_of_an_unknown_size_are_refused(type_, table):
    data = bytearray(dump_bytes("program"))
    struct.pack_into("<Q", data, section_header(data, type_) + 56, 4)
    with pytest.raises(CoreDumpError, match=f"{table} table.*unknown layout"):
        decode_core_dump(bytes(data))


def test_dump_without_a_table_is_refused():
    data = bytearray(dump_bytes("program"))
    struct.pack_into("<I", data, section_header(data, 16) + 4, 1)
    with pytest.raises(CoreDumpError, match="has no module table"):
        decode_core_dump(bytes(data))


def repeated_image(data, count):
    """The dump, with `count` headers more of its largest image."""
    found = [s for s in sections(data, ET_CORE, "dump") if s.type == 0x8000_0007]
    largest = max(found, key=lambda section: section.size)
    table = struct.unpack_from("<Q", data, 40)[0]
    headers = data[table : table + 64 * struct.unpack_from("<H", data, 60)[0]]
    index = next(
        at
        for at in range(0, len(headers), 64)
        if struct.unpack_from("<Q", headers, at + 24)[0] == largest.offset
    )
    start = -(-len(data) // 8) * 8
    whole = bytearray(data.ljust(start, b"\0") + headers + headers[index : index + 64] * count)
    struct.pack_into("<Q", whole, 40, start)
    struct.pack_into("<H", whole, 60, len(headers) // 64 + count)
    return bytes(whole)


def test_images_that_lie_over_each_other_are_refused():
    whole = dump_bytes("program")
    assert len(decode_core_dump(repeated_image(whole, 0)).images) == len(
        decode_core_dump(whole).images
    )
    with pytest.raises(CoreDumpError, match=r"has sections of \d+ bytes in"):
        decode_core_dump(repeated_image(whole, 20_000))


def test_unknown_exception_is_named_by_its_number():
    data = bytearray(dump_bytes("store"))
    table = next(s for s in sections(data, ET_CORE, "dump") if s.type == 0x8000_000B)
    for at in range(table.offset, table.offset + table.size, table.entry_size):
        if struct.unpack_from("<I", data, at + 8)[0]:
            struct.pack_into("<I", data, at + 8, 99)
    (fault,) = faults_of(decode_core_dump(bytes(data)))
    assert (fault.kind, fault.line) == ("gpu-exception", LINES["crash: store"])
    assert "exception 99" in fault.message


def test_image_without_lines_gives_no_line():
    data = dump_bytes("store").replace(b".debug_line", b".debug_none")
    (fault,) = faults_of(decode_core_dump(data))
    assert (fault.kernel, fault.frames) == ("store_far", ())
    assert "carries no line" in fault.message


def test_damaged_dumps_raise_nothing_else():
    chance = random.Random(7)
    for name in ("store", "program"):
        whole = dump_bytes(name)
        table = struct.unpack_from("<Q", whole, 40)[0]
        for _ in range(60):
            data = bytearray(whole)
            for _ in range(chance.randint(1, 40)):
                start = chance.choice([0, table])
                data[chance.randrange(start, len(data))] = chance.randrange(256)
            with suppress(CoreDumpError):
                dump = decode_core_dump(bytes(data))
                for stop in dump.stops[:3]:
                    if stop.pc is not None:
                        dump.place_of(stop.pc)


def test_command_tells_the_line(tmp_path, capsys):
    path = tmp_path / "gpu.core"
    path.write_bytes(dump_bytes("chain"))
    assert main(["crash", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "NVIDIA H200 (sm_90, driver 580.159)" in printed
    assert f":{LINES['crash: chain']}: illegal-address in chained" in printed
    assert f"called from /tmp/k/kernels.py:{LINES['chain: kernel']} in chained" in printed
    assert main(["crash", str(path), "--format", "json"]) == 0
    (fault,) = valid("crash", capsys.readouterr().out)["faults"]
    assert fault["line"] == LINES["crash: chain"]
    assert len(fault["call_chain"]) == 3


@pytest.mark.parametrize("name", ["missing.core", "text.core", "empty.core"])
def test_command_refuses_what_is_no_dump_in_one_line(tmp_path, capsys, name):
    (tmp_path / "text.core").write_text("no dump " * 100)
    (tmp_path / "empty.core").touch()
    assert main(["crash", str(tmp_path / name)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"tkdebug: {tmp_path / name}: ")
    assert printed.err.count("\n") == 1


def test_unreadable_file_is_one_clear_line(tmp_path):
    with pytest.raises(CoreDumpError, match="cannot be read"):
        read_core_dump(Path(tmp_path))


def test_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CoreDumpError, match="is a pipe or a device, expected a file"):
        read_core_dump(tmp_path / "pipe")


def test_sections_that_are_asked_for_keep_their_numbers():
    data = dump_bytes("program")
    everything = list(sections(data, ET_CORE, "dump"))
    wanted = {everything[5].type, everything[-1].type}
    chosen = dict(chosen_sections(data, ET_CORE, "dump", wanted))
    assert chosen == {n: one for n, one in enumerate(everything) if one.type in wanted}
    assert 1 < len(chosen) < len(everything)
