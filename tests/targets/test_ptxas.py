"""`ptxas`: found where it may lie, and preferred to nvJitLink unless it spills more."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tkdebug.compiler.targets.nvptx.codegen import ptx_stage, ptxas
from tkdebug.compiler.targets.nvptx.codegen.wire import StageError

PTX = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n"
OPTIONS = ["-arch=sm_80", "-lineinfo", "-O3", "-verbose", "-no-cache"]


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """No ptxas but those that a test makes."""
    for name in ("nvidia_folders", "package_folders"):
        monkeypatch.setattr(ptxas, name, lambda *_: iter(()))
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    ptxas.find_ptxas.cache_clear()
    yield tmp_path
    ptxas.find_ptxas.cache_clear()


def program(path: Path, release: str, log: str = "", status: int = 0) -> Path:
    """A ptxas of that release whose cubin is `made` by it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"""#!/bin/sh
PATH=/bin:/usr/bin
if [ "$1" = --version ]; then echo "Cuda compilation tools, release {release}"; exit 0; fi
while [ "$1" != -o ]; do echo "given $1"; shift; done
echo "{log}"
echo made > "$2"
exit {status}
"""
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_too_old_ptxas_is_passed_over(alone):
    old = program(alone / "cuda" / "bin" / "ptxas", "12.4, V12.4.1")
    new = program(alone / "bin" / "ptxas", "13.0, V13.0.1")
    assert ptxas.programs() == [old, new]
    assert ptxas.find_ptxas() == new


def test_without_ptxas_nvjitlink_assembles(alone):
    assert ptxas.find_ptxas() is None
    cubin, log = ptx_stage.assemble(PTX, "k", OPTIONS, 10)
    assert cubin.startswith(b"\x7fELF")
    assert "Compiling entry function 'k'" in log


def test_options_are_said_in_ptxas_s_words(alone):
    found = program(alone / "bin" / "ptxas", "13.0")
    cubin, log = ptx_stage.assemble(PTX, "k", OPTIONS, 10)
    assert ptxas.find_ptxas() == found
    assert cubin == b"made\n"
    given = [line.removeprefix("given ") for line in log.splitlines() if "given" in line]
    assert given[:-1] == ["-arch=sm_80", "-lineinfo", "-O3", "-v"]
    assert given[-1].endswith("kernel.ptx")


def test_cubin_with_fewer_spills_is_taken(alone):
    program(alone / "bin" / "ptxas", "13.0", "64 bytes spill stores, 32 bytes spill loads")
    cubin, log = ptx_stage.assemble(PTX, "k", OPTIONS, 10)
    assert cubin.startswith(b"\x7fELF")
    assert "0 bytes spill stores" in log


def test_refusal_of_ptxas_comes_with_its_log(alone):
    program(alone / "bin" / "ptxas", "13.0", "ptxas k.ptx, line 3; error   : no", status=255)
    with pytest.raises(StageError, match="ended with 255") as caught:
        ptx_stage.assemble(PTX, "k", OPTIONS, 10)
    assert "line 3; error" in caught.value.log


def test_kernel_that_spills_is_ptxas_s_where_nvjitlink_refuses_it(alone, monkeypatch):
    program(alone / "bin" / "ptxas", "13.0", "64 bytes spill stores, 32 bytes spill loads")

    def refused(*_: object) -> None:
        raise StageError("assemble", "nvJitLink does not know this PTX")

    monkeypatch.setattr(ptx_stage, "link", refused)
    assert ptx_stage.assemble(PTX, "k", OPTIONS, 10)[0] == b"made\n"


def test_cubin_that_was_to_be_faster_may_fail_or_come_too_late(alone, monkeypatch):
    text = PTX.replace(b"k() {", b"k()\n.reqntid 32\n{")
    monkeypatch.setattr(ptx_stage, "_waits_again_and_again", lambda cubin: True)
    given = []

    def first_alone(path: Path, ptx: bytes, options: object, timeout_s: float) -> tuple[bytes, str]:
        given.append((ptx == text, timeout_s))
        if len(given) > 1:
            raise StageError("assemble", "timed out after what was left of 10 seconds")
        return b"made", ""

    program(alone / "bin" / "ptxas", "13.0")
    monkeypatch.setattr(ptxas, "assemble", first_alone)
    assert ptx_stage.assemble(text, "k", OPTIONS, 10) == (b"made", "")
    (whole, first_s), (changed, second_s) = given
    assert (whole, changed) == (True, False)
    assert second_s < first_s <= 10
