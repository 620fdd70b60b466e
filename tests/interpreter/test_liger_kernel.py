"""liger-kernel, as PyPI has it, interpreted: its functions and their gradients match torch."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("liger_kernel") is None, reason="liger-kernel is not installed"
)

FUNCTIONS = (
    *("softmax", "rms_norm", "layer_norm", "group_norm", "cross_entropy"),
    *("cross_entropy, sum, smoothed", "rope", "swiglu", "geglu", "dyt"),
    *("fused_linear_cross_entropy", "jsd", "kl_div", "tvd"),
)
# Relative to the largest value; bf16 has 8 bits, and liger rounds more than once.
TOLERANCE = {"fp32": 2e-5, "bf16": 2e-2}


@pytest.fixture(scope="module")
def differences(tmp_path_factory):
    report = tmp_path_factory.mktemp("liger") / "report.json"
    done = subprocess.run(
        [sys.executable, "-m", "tkdebug", "run", "--no-tui", "--mode", "interpret",
         "--report", report, Path(__file__).with_name("liger_functions.py")],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    recorded = json.loads(report.read_text())
    assert recorded["launches"]
    assert not recorded["faults"]
    return json.loads(done.stdout)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_function_and_gradients(differences, function, dtype):
    found = differences[f"{function}, {dtype}"]
    assert found["forward"] <= TOLERANCE[dtype]
    assert found["backward"] <= TOLERANCE[dtype]


def test_every_function_is_compared(differences):
    assert {name.rpartition(",")[0] for name in differences} == set(FUNCTIONS)
