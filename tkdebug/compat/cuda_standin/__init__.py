"""A CUDA device on machines without one, so that a script that says `device="cuda"` runs.

Its tensors are CUDA tensors to all of torch, and their memory is the host's (`tensors`). torch's
operators get kernels for CUDA that run the CPU's on that memory (`kernels`, `special_kernels`); the
dispatcher, autograd, autocast and torch's compiler see CUDA tensors as on a GPU. Parts that torch
does not offer for that are in `torch_internals`, which is tested once for each installed torch
(`support`). `patches` replaces `torch.cuda` and related modules; CUDA graphs are recorded
operations (`cuda_module`, `capture`).
"""

from __future__ import annotations

from contextlib import ExitStack

from tkdebug.compat.replacements import InPlace

__all__ = ["cuda_usable", "install"]


class _InForce:
    """The switch that tells whether the stand-in is in force."""

    is_so = False


def cuda_usable() -> bool:
    """Whether a real CUDA device answers, and no stand-in."""
    import torch

    if _InForce.is_so:
        return False
    return torch.cuda.is_available() and torch.cuda.device_count() > 0


def install() -> InPlace:
    """Put the stand-in in force; if it is already, this changes nothing.

    Taking it out makes torch the very torch it was; CUDA tensors that are left have no operators.

    Raises:
        UnsupportedError: the installed torch differs from the known ones.
    """
    import torch

    if _InForce.is_so:
        return InPlace()

    from tkdebug.compat.cuda_standin.support import check_installed_torch

    check_installed_torch()

    from tkdebug.compat.cuda_standin import patches, torch_internals
    from tkdebug.compat.cuda_standin.generators import GENERATOR
    from tkdebug.compat.cuda_standin.kernels import register_kernels
    from tkdebug.compat.replacements import Replacements

    def take_out() -> None:
        if torch.get_default_device().type == "cuda":
            torch.set_default_device(None)
        _InForce.is_so = False

    with ExitStack() as undo:
        # Half of a stand-in would be worse than none.
        replacements = Replacements()
        undo.callback(replacements.restore)
        patches.apply(replacements)
        undo.callback(torch_internals.put_in_place(GENERATOR))
        undo.callback(register_kernels())
        _InForce.is_so = True
        undo.callback(take_out)
        return InPlace(undo)
