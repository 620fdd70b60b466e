from __future__ import annotations

import ast
import os
import struct
from dataclasses import replace
from pathlib import Path

import llvm_text
import pytest
from native_support import needs_codegen, needs_nvdisasm

from tkdebug.compiler.targets.nvptx.architectures import TARGETS
from tkdebug.compiler.targets.nvptx.codegen import code_cache, generation, wire
from tkdebug.compiler.targets.nvptx.codegen.generation import generate
from tkdebug.compiler.targets.nvptx.native_code import NativeCode
from tkdebug.errors import Frame
from tkdebug.knobs import KNOBS
from tkdebug.linemap.nvidia import unread_code
from tkdebug.linemap.nvidia.tools import disassemble
from tkdebug.process import disk_cache

pytestmark = needs_codegen
POSIX = pytest.mark.skipif(os.name != "posix", reason="owners and modes as POSIX has them")
HOPPER = TARGETS["sm_90a"]


@pytest.fixture(scope="module")
def code() -> NativeCode:
    return generate(llvm_text.VECTOR_ADD, "k", HOPPER)


@pytest.fixture
def _no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*arguments: object) -> None:
        raise AssertionError("a worker was asked")

    monkeypatch.setattr(generation, "_ask", ask)


def files() -> list[Path]:
    return sorted(path for path in disk_cache.directory().rglob("*") if path.is_file())


def same(one: NativeCode, other: NativeCode) -> bool:
    fields = set(NativeCode.__slots__) - {"times_ns"}
    return all(getattr(one, name) == getattr(other, name) for name in fields)


@pytest.mark.usefixtures("_no_worker")
def test_stored_kernel_comes_back_whole(code: NativeCode) -> None:
    code_cache.store("ab" * 32, "k", code)
    found = code_cache.load("ab" * 32, "k")
    assert found is not None
    assert same(found, code)
    assert len(files()) == 1


def test_second_compile_asks_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    first = generate(llvm_text.VECTOR_ADD, "k", HOPPER)
    monkeypatch.setattr(generation, "_ask", None)
    assert same(generate(llvm_text.VECTOR_ADD, "k", HOPPER), first)


def test_always_compile_ignores_what_is_stored() -> None:
    generate(llvm_text.VECTOR_ADD, "k", HOPPER)
    with KNOBS.scope(always_compile=True):
        assert generate(llvm_text.VECTOR_ADD, "k", HOPPER).times_ns


def test_target_options_and_locations_are_part_of_the_key() -> None:
    frames = {14: (Frame("a.py", 1, "k"),)}
    for target in ("sm_80", "sm_90a"):
        generate(llvm_text.VECTOR_ADD, "k", TARGETS[target])
    generate(llvm_text.VECTOR_ADD, "k", HOPPER, max_registers=32)
    generate(llvm_text.VECTOR_ADD, "k", HOPPER, locations=frames)
    assert len(files()) == 4


def framed(header: bytes) -> bytes:
    """An entry of that header, which JSON's writer might not write."""
    return struct.pack("<4sIQ", b"TKF1", len(header), 0) + header


@pytest.mark.usefixtures("_no_worker")
@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "foreign", "huge", "type", "nested"])
def test_damaged_file_is_reported_and_removed(
    damage: str, code: NativeCode, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "cd" * 32
    code_cache.store(key, "k", code)
    (path,) = files()
    data = path.read_bytes()
    path.write_bytes(
        {
            "empty": b"",
            "cut": data[:-7],
            "flipped": data[:-7] + bytes([data[-7] ^ 1]) + data[-6:],
            "foreign": b"\x80\x04." + data,
            "huge": data[:4] + b"\xff" * 12 + data[16:],
            "type": wire.pack({"key": key, "kernel": "k", "sha256": 3}),
            "nested": framed(b'{"key": ' + b"[" * 100_000),
        }[damage]
    )
    assert code_cache.load(key, "k") is None
    assert "is damaged" in capsys.readouterr().err
    assert files() == []


@pytest.mark.parametrize("other", ["of another kernel", "for another GPU", "cut", "no cubin"])
def test_entry_that_is_signed_again_with_another_cubin_is_compiled_again(
    other: str, code: NativeCode, capsys: pytest.CaptureFixture[str]
) -> None:
    generate(llvm_text.VECTOR_ADD, "k", HOPPER)
    (path,) = files()
    key = path.parent.name + path.stem
    cubin = {
        "of another kernel": lambda: code.cubin.replace(b".text.k\0", b".text.x\0"),
        "for another GPU": lambda: generate(llvm_text.VECTOR_ADD, "k", TARGETS["sm_80"]).cubin,
        "cut": lambda: code.cubin[: len(code.cubin) // 2],
        "no cubin": lambda: b"\x7fELF",
    }[other]()
    code_cache.store(key, "k", replace(code, cubin=cubin))
    made = generate(llvm_text.VECTOR_ADD, "k", HOPPER)
    assert made.times_ns  # compiled, not read
    assert made.cubin == code.cubin
    assert "cached file is damaged" in capsys.readouterr().err


@pytest.mark.usefixtures("_no_worker")
@pytest.mark.parametrize(
    "lines", [[[1, [2]]], [["1", 2]], [[True, 2]], [[1]], [7], [[float("inf"), 1]]]
)
def test_line_table_of_the_wrong_types_is_damage(
    lines: list[object], code: NativeCode, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "cd" * 32
    code_cache.store(key, "k", code)
    (path,) = files()
    header, body = wire.unpack(path.read_bytes())
    path.write_bytes(wire.pack({**header, "lines": lines}, body))
    assert code_cache.load(key, "k") is None
    assert "is damaged" in capsys.readouterr().err


@needs_nvdisasm
def test_machine_code_that_was_disassembled_is_read_from_the_disk(
    code: NativeCode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def again() -> str:
        unread_code.sass_text.cache_clear()
        return unread_code.sass_text(code.cubin)

    text = again()
    assert text == disassemble(code.cubin)
    (path,) = files()
    monkeypatch.setattr(unread_code, "disassemble", None)
    assert again() == text
    monkeypatch.setattr(unread_code, "disassemble", lambda cubin, options: text)
    path.write_bytes(path.read_bytes()[:-3])
    assert again() == text
    assert f"{path}: cached file is damaged" in capsys.readouterr().err
    monkeypatch.setattr(unread_code, "_maker", lambda *of: "another nvdisasm's")
    monkeypatch.setattr(unread_code, "disassemble", lambda cubin, options: "other")
    assert again() == "other"


@POSIX
@pytest.mark.usefixtures("_no_worker")
@pytest.mark.parametrize("mode", [0o020, 0o002])
@pytest.mark.parametrize("where", ["file", "folder"])
def test_kernel_that_others_can_write_is_not_used(
    where: str, mode: int, code: NativeCode, capsys: pytest.CaptureFixture[str]
) -> None:
    key = f"{mode:02x}" * 32
    code_cache.store(key, "k", code)
    (path,) = files()
    open_to_all = path if where == "file" else path.parent
    open_to_all.chmod(open_to_all.stat().st_mode | mode)
    assert code_cache.load(key, "k") is None
    assert code_cache.load(key, "k") is None
    assert capsys.readouterr().err.count(f"{open_to_all}: others can write it") == 1
    code_cache.store(key, "k", code)
    assert (code_cache.load(key, "k") is not None) == (where == "file")  # written again by us


@POSIX
@pytest.mark.usefixtures("_no_worker")
def test_kernel_of_another_user_is_not_used(
    code: NativeCode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "ce" * 32
    code_cache.store(key, "k", code)
    (path,) = files()
    owner = path.stat().st_uid
    if owner == 0:  # what is root's may be used by all
        os.chown(path, 4321, -1)
        assert code_cache.load(key, "k") is None
        assert "its owner is user 4321" in capsys.readouterr().err
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
        assert code_cache.load(key, "k") is None
        assert f"its owner is user {owner}" in capsys.readouterr().err


@POSIX
@pytest.mark.usefixtures("_no_worker")
def test_fifo_in_the_place_of_a_kernel_is_not_waited_for(
    code: NativeCode, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "cf" * 32
    code_cache.store(key, "k", code)
    (path,) = files()
    path.unlink()
    os.mkfifo(path, 0o600)
    assert code_cache.load(key, "k") is None
    assert "it is not a regular file" in capsys.readouterr().err


@POSIX
@pytest.mark.usefixtures("_no_worker")
def test_kernel_kept_under_a_lenient_umask_is_used(code: NativeCode) -> None:
    before = os.umask(0o002)
    try:
        code_cache.store("d0" * 32, "k", code)
    finally:
        os.umask(before)
    assert code_cache.load("d0" * 32, "k") is not None


@POSIX
@pytest.mark.usefixtures("_no_worker")
def test_nothing_is_kept_where_others_can_write(
    code: NativeCode, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = disk_cache.directory() / "d1"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    code_cache.store("d1" * 32, "k", code)
    assert files() == []
    assert f"{folder}: others can write it" in capsys.readouterr().err


@pytest.mark.usefixtures("_no_worker")
def test_directory_that_cannot_be_written_is_reported_once(
    tmp_path: Path, code: NativeCode, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    with KNOBS.scope(cache_dir=tmp_path / "file"):
        code_cache.store("ef" * 32, "k", code)
        code_cache.store("ef" * 32, "k", code)
    assert capsys.readouterr().err.count("not kept in the cache") == 1


@pytest.mark.usefixtures("_no_worker")
def test_trim_removes_what_was_used_longest_ago(code: NativeCode) -> None:
    keys = [f"{number:02x}" * 32 for number in range(10)]
    for age, key in enumerate(keys):
        code_cache.store(key, "k", code)
        (path,) = (p for p in files() if p.name.startswith(key[2:]))
        os.utime(path, ns=(age * 10**9, age * 10**9))
    code_cache.load(keys[0], "k")  # used just now
    size = files()[0].stat().st_size
    disk_cache.trim(disk_cache.directory(), 5 * size)
    kept = [key for key in keys if code_cache.load(key, "k") is not None]
    assert kept == [keys[0], *keys[-3:]]


def test_trim_removes_what_killed_processes_left(code: NativeCode) -> None:
    code_cache.store("ab" * 32, "k", code)
    (kept,) = files()
    abandoned, being_written = kept.parent / ".new-abandoned", kept.parent / ".new-now"
    abandoned.write_bytes(b"half")
    os.utime(abandoned, (0, 0))
    being_written.write_bytes(b"half")
    disk_cache.trim(disk_cache.directory(), 1 << 30)
    assert not abandoned.exists()
    assert being_written.exists()
    assert kept.exists()


def test_files_are_looked_at_once_in_a_while(
    code: NativeCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    trimmed = []
    monkeypatch.setattr(disk_cache, "trim", lambda *of: trimmed.append(of))
    monkeypatch.setattr(disk_cache, "_STORES_BETWEEN_TRIMS", 1)
    code_cache.store("ab" * 32, "k", code)
    assert not trimmed  # the folder is new
    os.utime(disk_cache.directory(), (0, 0))
    for _ in range(2):
        code_cache.store("ab" * 32, "k", code)
    assert len(trimmed) == 1


# What only carries code, finds faults in it or says what went wrong.
CARRIERS = (
    *("code_cache", "deadly_ops", "diagnosis", "private_files", "stage_error", "wire"),
    "worker_process",
)


def test_every_module_that_decides_the_code_is_in_the_key() -> None:
    rooms = ("tkdebug.compiler.targets.nvptx.", "tkdebug.linemap.nvidia.")
    known = {f"{rooms[0]}native_code", *(f"{rooms[0]}codegen.{name}" for name in CARRIERS)}
    root = Path(code_cache.__file__).parents[5]
    needed = [f"{rooms[0]}codegen.{name}" for name in ("generation", "llvm_stage", "ptx_stage")]
    found = set()
    while needed:
        module = needed.pop()
        path = root.joinpath(*module.split(".")).with_suffix(".py")
        if module in found | known or not module.startswith(rooms) or not path.exists():
            continue
        found.add(module)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                needed += [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
    assert found == {f"tkdebug.{name}" for name in code_cache.STAGES}


def test_code_too_large_for_a_file_is_not_kept_and_that_is_said(
    code: NativeCode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wire, "MAX_BODY_BYTES", 10)
    disk_cache._say_once.cache_clear()
    code_cache.store("ab" * 32, "k", code)
    assert files() == []
    assert "not kept in the cache: got " in capsys.readouterr().err
