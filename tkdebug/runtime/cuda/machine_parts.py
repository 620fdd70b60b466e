"""Parts of this machine that launches on NVIDIA GPUs use: devices and the driver."""

from __future__ import annotations

from importlib.util import find_spec

from tkdebug.compiler.targets.machine_parts import MachinePart, MachineParts, first_sentence
from tkdebug.compiler.targets.nvptx import architectures


def _device() -> MachinePart:
    name = "CUDA device"
    advice = "none needed: scripts that say device='cuda' run on the CPU under interpret"
    try:
        detail, found = _torch_devices() or _driver_devices(), True
    except Exception as error:
        detail, found = f"none usable ({first_sentence(error)})", False
    if detail:
        return MachinePart(name, found, detail, advice, needed=False)
    return MachinePart(name, False, "none usable", advice, needed=False)


def _torch_devices() -> str:
    import torch

    if not torch.cuda.is_available():
        return ""
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    major, minor = torch.cuda.get_device_capability(0)
    return f"{', '.join(names)} (sm_{major}{minor}{_untried(major, minor)})"


def _untried(major: int, minor: int) -> str:
    target = architectures.find((major, minor))
    if target is None:
        return ", which kernels are not compiled for"
    return "" if target.is_tried else "; tkdebug's kernels never ran on such a GPU"


def _driver_devices() -> str:
    """The devices that the driver itself reports, for a torch without CUDA."""
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return ""
    from cuda.bindings import driver

    if int(driver.cuInit(0)[0]) != 0:
        return ""
    error, count = driver.cuDeviceGetCount()
    if int(error) != 0 or not count:
        return ""
    names = [driver.cuDeviceGetName(128, index)[1] for index in range(count)]
    shown = ", ".join(bytes(name).split(b"\0")[0].decode("utf-8", "replace") for name in names)
    return f"{shown} (not usable by this build of torch)"


def _driver() -> MachinePart:
    name = "CUDA driver"
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return MachinePart(name, False, "unknown: cuda-bindings is not installed", needed=False)
    from cuda.bindings import driver

    try:
        error, version = driver.cuDriverGetVersion()
    except Exception as failure:
        return MachinePart(name, False, f"none ({first_sentence(failure)})", needed=False)
    if int(error) != 0:
        return MachinePart(name, False, "none", needed=False)
    return MachinePart(name, True, f"supports CUDA {version // 1000}.{version % 1000 // 10}")


PARTS: MachineParts = {"CUDA device": _device, "CUDA driver": _driver}
