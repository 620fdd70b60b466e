"""`tl.target_info`: the target that a kernel is compiled for, on the host and in kernels."""

from __future__ import annotations

from typing import Any

from tkdebug.compiler.tensor import unwrap


def current_target() -> Any:
    """The target of the active driver: `backend`, `arch`, `warp_size`."""
    from tkdebug.runtime.device.driver import driver

    return driver.active.get_current_target()


def is_cuda() -> bool:
    """Whether the target is an NVIDIA GPU."""
    return bool(current_target().backend == "cuda")


def cuda_capability_geq(major: Any, minor: Any = 0) -> bool:
    """Whether the target is an NVIDIA GPU of at least this compute capability."""
    return is_cuda() and int(current_target().arch) >= 10 * unwrap(major) + unwrap(minor)


def is_hip() -> bool:
    """Whether the target is an AMD GPU."""
    return bool(current_target().backend == "hip")


def is_hip_cdna3() -> bool:
    """Whether the target is an AMD GPU of architecture gfx942."""
    return bool(current_target().arch == "gfx942")


def is_hip_cdna4() -> bool:
    """Whether the target is an AMD GPU of architecture gfx950."""
    return bool(current_target().arch == "gfx950")
