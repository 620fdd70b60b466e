"""Whether a kernel on one device can access a tensor that lives elsewhere.

Asked only of tensors that are not on the launch's device: pinned host memory and peers are legal,
which the driver knows, plain host memory is not.
"""

from __future__ import annotations

from typing import Any

from tkdebug.runtime.cuda import driver_api
from tkdebug.runtime.errors import PointerError


def accessible_address(kernel: str, argument: str, value: Any, device: int) -> int:
    """The address of `value`, a tensor that is not known to be on `device`.

    Raises:
        PointerError: kernels on `device` cannot access it.
    """
    address = int(value.data_ptr())
    if address == 0 and not _is_meta(value):
        return address
    where = str(getattr(value, "device", "an unknown device"))
    if where != f"cuda:{device}" and not _driver_knows(address):
        raise PointerError(_refusal(kernel, argument, where, device))
    return address


def _is_meta(value: Any) -> bool:
    kind = getattr(getattr(value, "device", None), "type", "")
    return kind == "meta"


def _driver_knows(address: int) -> bool:
    """Whether the driver has an address through which the current context accesses `address`."""
    if address == 0:
        return False
    bindings = driver_api.driver()
    which = bindings.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_POINTER
    status, *_ = bindings.cuPointerGetAttribute(which, bindings.CUdeviceptr(address))
    if int(status) == driver_api.INVALID_VALUE:
        return False
    if int(status) != driver_api.SUCCESS:
        raise driver_api.cuda_error(int(status), "cuPointerGetAttribute")
    return True


def _refusal(kernel: str, argument: str, where: str, device: int) -> str:
    start = f"kernel {kernel}: argument `{argument}` is on {where}, the launch on cuda:{device}: "
    if where.startswith("cuda"):
        return (
            f"{start}there is no peer access between them; launch inside "
            f"`with torch.cuda.device({where.rpartition(':')[2]}):`, or copy the tensor"
        )
    return (
        f"{start}Pointer argument cannot be accessed from Triton ({where} tensor?); "
        f"move it with .to('cuda:{device}'), or pin its memory"
    )
