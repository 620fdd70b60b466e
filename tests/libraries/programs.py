"""Programs that are no tests: `tkdebug run tests/libraries/programs.py kernelbench SOURCE`.

Each compares the kernels of a source with torch, and prints a line for each. `tutorials` runs one
tutorial of a checkout, which compares by itself: with `--quick`, and behind SOURCE its number, such
as 03a, and `--small` for the sizes that the fork for Intel's GPUs has for a simulator.
"""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
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


# What the fork for Intel's GPUs asks its driver, and the answer for CUDA; kernels stay as they are.
_OF_INTEL = {
    """.get_current_target().arch['arch'] == "cri\"""": '.get_current_target().backend == "cri"',
    "torch.xpu.get_device_properties().total_memory": "80 << 30",
    "torch.xpu.": "torch.cuda.",
    "device='xpu'": "device='cuda'",
    'properties["sub_group_sizes"][-1]': "32",
    'properties["max_work_group_size"]': "1024",
    # Upstream refuses accumulators in bf16.
    "FP16_TYPES + FP32_TYPES": "[t for t in FP16_TYPES if t[1] != torch.bfloat16] + FP32_TYPES",
}


def tutorials(source: Path) -> None:
    """One of the tutorials of upstream or of its fork for Intel's GPUs."""
    number, *arguments = sys.argv[3:]
    small = "--small" in arguments
    (tutorial,) = (source / "python/tutorials").glob(f"{number}-*.py")
    text = tutorial.read_text()
    for asked, answer in _OF_INTEL.items():
        text = text.replace(asked, answer)
    text = re.sub(r""",? *'?grf_mode'?[=:] *('\w+'|m)""", "", text)  # an option of Intel's compiler
    if small:
        text = text.replace('backend == "cri"', 'backend != "cri"')  # its simulator
    adapted = Path.cwd() / tutorial.name
    adapted.write_text(text)
    sys.argv[1:] = [argument for argument in arguments if argument != "--small"]
    runpy.run_path(str(adapted), run_name="__main__")
    print(f"{tutorial.stem}: ran to its end")


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
    programs = {"kernelbench": kernelbench, "lectures": lectures, "tutorials": tutorials}
    program, folder = programs[sys.argv[1]], Path(sys.argv[2]).resolve()
    with tempfile.TemporaryDirectory() as written:
        os.chdir(written)  # they write their plots where they are
        program(folder)
