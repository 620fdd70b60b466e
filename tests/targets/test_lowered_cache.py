"""Kernels that were lowered before are taken from the disk, with all that is known of them."""

from __future__ import annotations

import hashlib
import json
import shutil
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from native_support import needs_codegen

import tkdebug
import tkdebug.language as tl
from tkdebug.compiler.ir.printer import print_module
from tkdebug.compiler.sites.checks import CheckOptions
from tkdebug.compiler.targets.nvptx import lowered_cache
from tkdebug.compiler.targets.nvptx.codegen import wire
from tkdebug.knobs import KNOBS
from tkdebug.process import disk_cache
from tkdebug.records.events import KernelCompiled
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.compile.native_compilation import compile_native_kernel
from tkdebug.runtime.errors import OutOfResources
from tkdebug.runtime.launch.native_kernel import NativeKernel

pytestmark = needs_codegen


@tkdebug.jit
def total(x_ptr, out_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    offs = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        sums += tl.load(x_ptr + start + offs, mask=start + offs < n, other=0.0)
    tl.store(out_ptr + tl.program_id(0), tl.sum(sums, 0))


@pytest.fixture(autouse=True)
def lowerings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The lowerings of kernels: those that are kept, and others."""
    seen: list[str] = []

    def watch(name: str) -> None:
        lower = getattr(lowered_cache, name)

        def watched(*arguments: Any, **observers: Any) -> Any:
            seen.append(name)
            return lower(*arguments, **observers)

        monkeypatch.setattr(lowered_cache, name, watched)

    watch("lower_prepared")
    watch("lower_to_llvm")
    total.kernels.clear()
    with tkdebug.mode("native"):
        yield seen
    total.kernels.clear()


@pytest.fixture
def events() -> Iterator[list[KernelCompiled]]:
    compiled: list[KernelCompiled] = []
    hook = Hook(compiled=compiled.append)
    HOOKS.add(hook)
    yield compiled
    HOOKS.remove(hook)


def compiled(checks: CheckOptions | None = None, **options: Any) -> NativeKernel:
    total.kernels.clear()
    kernel = total.warmup(
        torch.float32, torch.float32, 4096, BLOCK=256, grid=(1,), arch="sm_90a", **options
    )
    return (
        kernel if checks is None else compile_native_kernel(replace(kernel.src, checks=checks), 0)
    )


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of compiled kernels that has one bare kernel."""
    folder = tmp_path_factory.mktemp("filled") / "cache"
    with tkdebug.mode("native"), KNOBS.scope(cache_dir=folder):
        compiled()
    return folder


@pytest.fixture
def stored(filled: Path, lowerings: list[str]) -> Path:
    """The entry of a kernel that was compiled before."""
    assert KNOBS.cache_dir is not None
    shutil.copytree(filled, KNOBS.cache_dir)
    (path,) = disk_cache.directory().glob(f"lowered-*/*{disk_cache.SUFFIX}")
    lowerings.clear()
    return path


def timeless(event: KernelCompiled) -> KernelCompiled:
    """The event without the times of this compile."""
    passes = tuple(replace(one, time_ns=0) for one in event.passes)
    return replace(event, compile_ns=0, cache_hit=False, passes=passes, line_table=None, image=None)


@pytest.mark.parametrize("checks", [None, CheckOptions()])
def test_second_compile_lowers_nothing_and_knows_the_same(
    checks: CheckOptions | None, lowerings: list[str], events: list[KernelCompiled]
) -> None:
    first = compiled(checks)
    made = events[-1]
    lowerings.clear()
    second = compiled(checks)
    found = events[-1]
    assert lowerings == []
    assert timeless(found) == timeless(made)
    assert (made.cache_hit, found.cache_hit) == (False, True)
    assert found.line_table is not None
    assert made.line_table is not None
    assert found.line_table() == made.line_table()
    assert len(found.passes) > 30 or checks is not None
    assert replace(second.binary, checks=None) == replace(first.binary, checks=None)
    if checks is not None:
        plan, other = first.binary.checks, second.binary.checks
        assert other.tests == plan.tests != ()
        assert (other.sites, other.bounds) == (plan.sites, plan.bounds)
        assert print_module(other.module, locations=True) == print_module(plan.module, True)


@pytest.mark.usefixtures("stored")
def test_gpu_ir_is_made_again_when_it_is_asked_for(lowerings: list[str]) -> None:
    kernel = compiled()
    assert lowerings == []
    text = print_module(kernel.gpu_module, locations=True)
    assert "linear" in kernel.asm["ttgir"]
    assert lowerings == ["lower_prepared"]
    with KNOBS.scope(always_compile=True):
        assert print_module(compiled().gpu_module, locations=True) == text


@pytest.mark.usefixtures("stored")
def test_another_compile_is_another_entry(lowerings: list[str]) -> None:
    for options in ({"num_warps": 8}, {"enable_fp_fusion": False}):
        compiled(**options)
    compiled(CheckOptions(kinds=frozenset(("oob-load",))))
    assert lowerings == ["lower_prepared"] * 3


@pytest.mark.usefixtures("stored")
def test_kernel_that_somebody_looks_into_is_lowered(
    lowerings: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with KNOBS.scope(dump_dir=tmp_path / "dump"):
        compiled()
    assert list((tmp_path / "dump").rglob("gpu-ir-after-*"))
    with KNOBS.scope(verify_each=True):
        compiled()
    monkeypatch.setattr(lowered_cache, "names", lambda group: ("a plugin's pass",))
    compiled()
    assert lowerings == ["lower_to_llvm"] * 3


@pytest.mark.usefixtures("stored")
def test_always_compile_ignores_what_is_stored(lowerings: list[str]) -> None:
    with KNOBS.scope(always_compile=True):
        compiled()
    assert lowerings == ["lower_prepared"]


def signed(path: Path, **changes: Any) -> None:
    """Change an entry's fields, and sign it again."""
    header, body = wire.unpack(path.read_bytes())
    names = list(lowered_cache._Entry.__dataclass_fields__)
    data = json.loads(zlib.decompress(body))
    for name, value in changes.items():
        data[names.index(name)] = value
    body = zlib.compress(json.dumps(data).encode())
    path.write_bytes(wire.pack({**header, "sha256": hashlib.sha256(body).hexdigest()}, body))


DAMAGES: dict[str, Any] = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "no text": lambda path: path.write_bytes(
        wire.pack({**wire.unpack(path.read_bytes())[0], "sha256": hashlib.sha256().hexdigest()})
    ),
    "type": lambda path: signed(path, shared_bytes=[7]),
    "chain": lambda path: signed(path, snapshots=[["gpu-ir", "text", [1], [1], [1]]]),
    "foreign": lambda path: signed(path, llvm_ir="define void @other()"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_entry_is_reported_and_made_again(
    damage: str, stored: Path, lowerings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    DAMAGES[damage](stored)
    compiled()
    assert lowerings == ["lower_prepared"]
    assert f"{stored}: cached file is damaged" in capsys.readouterr().err
    compiled()
    assert lowerings == ["lower_prepared"]


def test_entry_that_code_generation_refuses_is_lowered_again(
    stored: Path, lowerings: list[str]
) -> None:
    signed(stored, llvm_ir="define void @total( {")
    assert ".entry total(" in compiled().asm["ptx"]
    assert lowerings == ["lower_prepared"]


def test_kernel_that_needs_too_much_is_refused_from_the_disk_too(stored: Path) -> None:
    signed(stored, shared_bytes=1 << 30)
    with pytest.raises(OutOfResources, match=f"Required: {1 << 30}"):
        compiled()
