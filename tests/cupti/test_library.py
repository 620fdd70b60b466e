from pathlib import Path

import pytest

from tkdebug.cli import machine_parts
from tkdebug.instrument.cupti import library
from tkdebug.instrument.cupti.library import Cupti, CuptiError, find_cupti, result_text
from tkdebug.runtime.device.platform import platform_in_force


def test_library_that_is_loaded_is_taken_first(fake, tmp_path, monkeypatch):
    folder = tmp_path / "nvidia" / "cu13" / "lib"
    folder.mkdir(parents=True)
    (folder / "libcupti.so.13").touch()
    monkeypatch.syspath_prepend(tmp_path)
    # Where a test before has loaded the one of a toolkit, that is taken.
    assert find_cupti() != str(folder / "libcupti.so.13")
    assert find_cupti() in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize(("inner", "major"), [("cu13", 13), ("cuda_cupti", 12)])
def test_library_of_a_package_is_found(tmp_path, monkeypatch, inner, major):
    monkeypatch.setattr(library, "_loaded", lambda: iter(()))
    folder = tmp_path / "nvidia" / inner / "lib"
    folder.mkdir(parents=True)
    (folder / f"libcupti.so.{major}").touch()
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    assert find_cupti() == str(folder / f"libcupti.so.{major}")


def test_library_of_the_toolkit_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(library, "_loaded", lambda: iter(()))
    folder = tmp_path / "extras" / "CUPTI" / "lib64"
    folder.mkdir(parents=True)
    (folder / "libcupti.so.12").touch()
    monkeypatch.setattr("sys.path", [])
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert find_cupti() == str(folder / "libcupti.so.12")


def test_library_of_another_release_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(library, "_loaded", lambda: iter(()))
    monkeypatch.setattr(library, "_toolkits", lambda: iter(()))
    # Of those that are known the loader finds the fake.
    monkeypatch.setattr(library, "MAJORS", (16, 15))
    folder = tmp_path / "nvidia" / "cu14" / "lib"
    folder.mkdir(parents=True)
    (folder / "libcupti.so.14").touch()
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    with pytest.raises(CuptiError) as caught:
        find_cupti()
    assert str(caught.value).startswith(
        f"{folder}/libcupti.so.14: is of another release (expected libcupti.so.16 or "
        "libcupti.so.15); pip install nvidia-cuda-cupti"
    )


def test_missing_library_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(library, "_candidates", lambda: iter(()))
    monkeypatch.setattr(library, "_of_other_releases", lambda: [])
    with pytest.raises(CuptiError, match="libcupti is not installed; pip install"):
        find_cupti()


def test_file_that_is_no_library_is_refused(tmp_path):
    path = tmp_path / "libcupti.so.13"
    path.write_text("not one")
    with pytest.raises(CuptiError, match="cannot be loaded"):
        Cupti(str(path))


@pytest.mark.parametrize("version", [17, 140000, 130600])
def test_version_that_is_not_known_is_refused_by_its_number(fake, version):
    fake.reset(version)
    with pytest.raises(CuptiError, match=f"CUPTI version {version} is not known"):
        Cupti(fake.path)


def test_result_that_is_not_known_has_its_number():
    assert result_text(123) == "CUPTI error (123)"


@pytest.mark.parametrize(
    ("version", "found", "said"),
    [(130001, True, "CUDA 13.0"), (80, False, "CUPTI version 80 is not known")],
)
def test_doctor_says_which_cupti_times_kernels(fake, monkeypatch, version, found, said):
    fake.reset(version)
    monkeypatch.setattr(library, "find_cupti", lambda: fake.path)
    monkeypatch.setattr(type(platform_in_force()), "obstacle", lambda self: None)
    part = machine_parts.parts()["CUPTI"]()
    assert part.found == found
    assert said in part.detail
    assert found or not part.needed
