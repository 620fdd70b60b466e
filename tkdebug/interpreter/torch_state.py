"""What a script has set up in torch, and the interpreter's own work must neither see nor show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch


@contextmanager
def apart_from_the_script(device: torch.device) -> Iterator[None]:
    """Work of the interpreter on `device`, in this thread.

    Tensor subclasses, modes such as torch's counter of operations, and autograd do not hear of it,
    and `torch.autocast` does not round what its dots multiply.
    """
    kind = device.type
    is_cast = torch.is_autocast_enabled(kind)
    has_grad = torch.is_grad_enabled()
    with (
        torch._C.DisableTorchFunction(),  # noqa: SLF001
        torch._C._DisableTorchDispatch(),  # noqa: SLF001
        torch.autocast(kind, enabled=False) if is_cast else nullcontext(),
    ):
        torch._C._set_grad_enabled(False)  # noqa: SLF001
        try:
            yield
        finally:
            torch._C._set_grad_enabled(has_grad)  # noqa: SLF001
