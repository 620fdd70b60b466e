from __future__ import annotations

import os
from pathlib import Path

import llvm_text
import pytest
from native_support import needs_codegen

from tkdebug.compiler.targets import TARGETS
from tkdebug.compiler.targets.nvptx import code_cache, codegen, wire
from tkdebug.compiler.targets.nvptx.codegen import generate
from tkdebug.compiler.targets.nvptx.native_code import NativeCode
from tkdebug.errors import Frame
from tkdebug.knobs import KNOBS

pytestmark = needs_codegen
HOPPER = TARGETS["sm_90a"]


@pytest.fixture(scope="module")
def code() -> NativeCode:
    return generate(llvm_text.VECTOR_ADD, "k", HOPPER)


@pytest.fixture
def _no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*arguments: object) -> None:
        raise AssertionError("a worker was asked")

    monkeypatch.setattr(codegen, "_ask", ask)


def files() -> list[Path]:
    return sorted(path for path in code_cache.directory().rglob("*") if path.is_file())


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
    monkeypatch.setattr(codegen, "_ask", None)
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


@pytest.mark.usefixtures("_no_worker")
@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "foreign", "huge", "type"])
def test_damaged_file_is_told_and_removed(
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
        }[damage]
    )
    assert code_cache.load(key, "k") is None
    assert "is damaged" in capsys.readouterr().err
    assert files() == []


@pytest.mark.usefixtures("_no_worker")
def test_directory_that_cannot_be_written_is_told_once(
    tmp_path: Path, code: NativeCode, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    with KNOBS.scope(cache_dir=tmp_path / "file"):
        code_cache.store("ef" * 32, "k", code)
        code_cache.store("ef" * 32, "k", code)
    assert capsys.readouterr().err.count("are not kept") == 1


@pytest.mark.usefixtures("_no_worker")
def test_trim_removes_what_was_used_longest_ago(code: NativeCode) -> None:
    keys = [f"{number:02x}" * 32 for number in range(10)]
    for age, key in enumerate(keys):
        code_cache.store(key, "k", code)
        (path,) = (p for p in files() if p.name.startswith(key[2:]))
        os.utime(path, ns=(age * 10**9, age * 10**9))
    code_cache.load(keys[0], "k")  # used just now
    size = files()[0].stat().st_size
    code_cache.trim(code_cache.directory(), 5 * size)
    kept = [key for key in keys if code_cache.load(key, "k") is not None]
    assert kept == [keys[0], *keys[-3:]]
