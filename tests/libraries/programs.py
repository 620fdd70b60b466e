"""Programs that are no tests: `tkdebug run tests/libraries/programs.py kernelbench SOURCE`.

Each compares the kernels of a source with torch, and prints a line for each.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import torch


def load(path: Path) -> ModuleType:
    """A file of the source as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compare(name: str, found: torch.Tensor, expected: torch.Tensor) -> None:
    """Print whether two results agree; end with 1 where they do not."""
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    print(f"{name}: equal to torch")


def kernelbench(source: Path) -> None:
    """The generated kernel that KernelBench shows its models, against its reference."""
    prompts = source / "src/kernelbench/prompts"
    reference = load(prompts / "model_ex_add.py")
    generated = load(prompts / "model_new_ex_add_triton.py")
    torch.manual_seed(0)
    inputs = [x.cuda() for x in reference.get_inputs()]
    expected = reference.Model(*reference.get_init_inputs()).cuda()(*inputs)
    found = generated.ModelNew(*reference.get_init_inputs()).cuda()(*inputs)
    compare("model_new_ex_add_triton", found, expected)


def lectures(source: Path) -> None:
    """Kernels of GPU MODE's lectures 1 and 18."""
    torch.manual_seed(0)
    fused = load(source / "lecture_018/kernels/triton_fused_add_mul_activation.py")
    out, added, bias = fused.get_inputs(add_manual_seed=True)
    expected = fused.add_mul_activation_torch(out.clone(), bias, added)
    compare(
        "lecture 18, fused add, mul, activation",
        fused.fused_add_mul_activation_torch(out, bias, added),
        expected,
    )
    square = load(source / "lecture_001/triton_square.py")
    x = torch.randn(77, 781, device="cuda")
    compare("lecture 1, square", square.square(x), x**2)


if __name__ == "__main__":
    program, source = {"kernelbench": kernelbench, "lectures": lectures}[sys.argv[1]], sys.argv[2]
    folder = Path(source).resolve()
    with tempfile.TemporaryDirectory() as written:
        os.chdir(written)  # they write their plots where they are
        program(folder)
