"""The process that samples a GPU, by a file in a folder where everybody may write."""

import os
import tempfile

import pytest

from tkdebug.instrument.cupti.pc_sampling import SampledGpus

pytestmark = pytest.mark.skipif(os.name != "posix", reason="locks as POSIX has them")


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / "tkdebug-samples-GPU-1"


def test_one_samples_a_gpu_until_it_has_released_it(place):
    first, second = SampledGpus(), SampledGpus()
    assert first.claim("GPU-1")
    assert not second.claim("GPU-1")
    first.release()
    assert second.claim("GPU-1")
    second.release()


def test_a_pipe_in_the_place_of_the_file_is_not_waited_for(place):
    os.mkfifo(place)
    first, second = SampledGpus(), SampledGpus()
    assert first.claim("GPU-1")
    assert not second.claim("GPU-1")
    first.release()
