"""`tkdebug verify --mode native`: kernels run on the GPU, with the checks of native launches."""

from pathlib import Path

import pytest

from tkdebug.knobs import KNOBS
from tkdebug.verification.process import verify
from tkdebug.verification.records import Request

pytestmark = pytest.mark.gpu
FILE = str(Path(__file__).with_name("verified_kernels.py"))


def answer_of(function, monkeypatch, reference="triple"):
    monkeypatch.setenv("PYTHONPATH", str(Path(FILE).parents[2]))
    given = {"seconds": 60.0, "cases": 12, "mode": "native"}
    with KNOBS.scope(cause_seconds=0.05):
        return verify(Request(FILE, function, f"verified_references:{reference}", **given))


def kinds(answer):
    return [finding.kind for finding in answer.findings if finding.is_wrong]


@pytest.mark.parametrize(
    ("function", "reference"),
    [("right", "triple"), ("on_a_joined_stream", "triple"), ("argmax", "argmax")],
)
def test_right_kernel_is_right_on_the_gpu(function, reference, monkeypatch):
    answer = answer_of(function, monkeypatch, reference)
    assert (answer.verdict, kinds(answer), answer.why) == ("right", [], "")
    assert answer.modes == ["native"]
    assert answer.covered.launches >= answer.covered.cases > 4


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ("wrong_factor", "wrong-value"),
        ("reads_outside", "oob-load"),
        ("lowers", "wrong-value"),
        ("writes_only_a_part", "wrong-value"),
        ("by_pointer", "cached-result"),
        ("on_a_stream", "other-stream"),
        ("torch_alone", "torch-fallback"),
        ("changes_its_input", "input-changed"),
    ],
)
def test_wrong_kernel_is_found_on_the_gpu(function, expected, monkeypatch):
    answer = answer_of(function, monkeypatch)
    assert answer.verdict == "wrong"
    assert expected in kinds(answer)
