"""The CPU as CUDA device, so that a script that says `device="cuda"` runs without a GPU.

A CUDA tensor of the stand-in is CPU memory with a mark on its storage (`placement`). A torch
function mode in every thread (`function_mode`) reads and sets the mark; `patches` replaces what a
mode cannot see: `torch.cuda`, generators, streams and events, autocast, autograd's own calls,
threads. CUDA graphs are recorded operations (`graphs`), memory is counted as marks come and go
(`device_memory`).

Not seen: operations below Python (a gradient is marked when it reaches Python), mixed CPU and CUDA
operands (a GPU would refuse them), `torch.device(0)` (an extension type's constructor; write
`torch.device("cuda", 0)`), and threads that were running before `install`.
"""

from __future__ import annotations

from contextlib import ExitStack

from tkdebug.compat.in_place import InPlace

__all__ = ["cuda_usable", "install"]

# The function mode of the stand-in that is in force, if one is.
_IN_FORCE: list[object] = []


def cuda_usable() -> bool:
    """Whether a real CUDA device answers, and no stand-in."""
    import torch

    if _IN_FORCE:
        return False
    return torch.cuda.is_available() and torch.cuda.device_count() > 0


def install() -> InPlace:
    """Put the stand-in in force, in this thread and all that start from now on.

    Taking it out makes torch the very torch it was. Where it is in force, this changes nothing.
    """
    import torch

    if _IN_FORCE:
        return InPlace()

    from tkdebug.compat.cuda_standin import patches
    from tkdebug.compat.cuda_standin.function_mode import CudaStandIn, leave
    from tkdebug.compat.replacements import Replacements

    mode, replacements = CudaStandIn(), Replacements()

    def take_out() -> None:
        if torch.get_default_device().type == "cuda":
            torch.set_default_device(None)
        # Other threads keep the mode on their stacks; inactive it passes every call on.
        mode.active = False
        leave(mode)
        _IN_FORCE.remove(mode)

    with ExitStack() as undo:
        # Half of a stand-in would be worse than none.
        undo.callback(replacements.restore)
        patches.apply(replacements, mode)
        mode.enter()
        _IN_FORCE.append(mode)
        undo.callback(take_out)
        return InPlace(undo)
