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

from types import TracebackType

__all__ = ["CudaStandInInstalled", "cuda_usable", "install"]


def cuda_usable() -> bool:
    """Whether a real CUDA device answers."""
    import torch

    return torch.cuda.is_available() and torch.cuda.device_count() > 0


class CudaStandInInstalled:
    """The stand-in in force; `uninstall` makes torch the very torch it was."""

    def __init__(self) -> None:
        from tkdebug.compat.cuda_standin import patches
        from tkdebug.compat.cuda_standin.function_mode import CudaStandIn

        self._mode = CudaStandIn()
        self._patches = patches.Patches()
        self._leave = patches.leave
        try:
            patches.apply(self._patches, self._mode)
        except BaseException:
            # Half of a stand-in would be worse than none.
            self._patches.restore()
            raise
        self._mode.enter()

    def uninstall(self) -> None:
        """Undo everything; a second call does nothing."""
        if self._mode.active:
            import torch

            if torch.get_default_device().type == "cuda":
                torch.set_default_device(None)
            # Other threads keep the mode on their stacks; inactive it passes every call on.
            self._mode.active = False
            self._leave(self._mode)
            self._patches.restore()

    def __enter__(self) -> CudaStandInInstalled:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.uninstall()


def install() -> CudaStandInInstalled:
    """Put the stand-in in force, in this thread and all that start from now on."""
    return CudaStandInInstalled()
