"""What generating code for NVIDIA GPUs uses of this machine."""

from __future__ import annotations

from importlib.util import find_spec

from tkdebug.compiler.targets.machine_parts import (
    MachinePart,
    MachineParts,
    first_sentence,
    package,
)


def _nvjitlink() -> MachinePart:
    name, later = "nvJitLink", "for native mode: pip install nvidia-nvjitlink"
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return MachinePart(name, False, "cuda-bindings is not installed", later, needed=False)
    try:
        from cuda.bindings import nvjitlink

        major, minor = nvjitlink.version()
    except Exception as error:
        reason = first_sentence(error)
        return MachinePart(name, False, f"cannot be loaded ({reason})", later, needed=False)
    return MachinePart(name, True, f"{major}.{minor}")


def _ptxas() -> MachinePart:
    from tkdebug.compiler.targets.nvptx.codegen.ptxas import find_ptxas

    found = find_ptxas()
    if found is not None:
        return MachinePart("ptxas", True, str(found))
    return MachinePart(
        "ptxas",
        False,
        "none of CUDA 12.8 or later; nvJitLink does its work and takes more registers",
        "for faster kernels: pip install nvidia-cuda-nvcc",
        needed=False,
    )


def _nvdisasm() -> MachinePart:
    from tkdebug.linemap.nvidia.disassembly import find_nvdisasm

    found = find_nvdisasm()
    if found is not None:
        return MachinePart("nvdisasm", True, str(found))
    return MachinePart(
        "nvdisasm",
        False,
        "not found",
        "for SASS text: pip install nvidia-cuda-nvdisasm",
        needed=False,
    )


def _targets() -> MachinePart:
    from tkdebug.compiler.targets.nvptx.architectures import TARGETS

    tried = ", ".join(target.name for target in TARGETS.values() if target.is_tried)
    text = f"{', '.join(TARGETS)}; kernels were run on {tried} (H100, H200), the others' never"
    return MachinePart("targets", True, text)


PARTS: MachineParts = {
    "targets": _targets,
    "nvJitLink": _nvjitlink,
    "ptxas": _ptxas,
    "nvdisasm": _nvdisasm,
    "llvmlite": lambda: package("llvmlite", "native code generation"),
}
