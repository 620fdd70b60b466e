"""`torch.cuda.default_generators[0]`: libraries take their kernels' seeds and offsets off it."""

from __future__ import annotations

import torch

from tkdebug.compat.cuda_standin.streams import Generator

_STATE_BYTES = 16
_UNSIGNED = 2**64


class DefaultGenerator(Generator):
    """The device's generator: its state is a seed and an offset, as a GPU's Philox has them.

    Tensors are filled from the CPU's generator, which does not count in offsets: the offset moves
    only by what is set.
    """

    def __init__(self) -> None:
        # No `super().__init__`: that tells of the stand-in, and nothing was used yet.
        self._on_cuda = True
        self._offset = 0

    def manual_seed(self, seed: int) -> DefaultGenerator:
        """Start again, and what fills tensors, too."""
        torch.default_generator.manual_seed(seed)
        super().manual_seed(seed)
        self._offset = 0
        return self

    def get_state(self) -> torch.Tensor:
        """16 bytes: the seed and the offset."""
        seed = self.initial_seed()
        signed = seed - _UNSIGNED if seed >= _UNSIGNED // 2 else seed
        return torch.tensor([signed, self._offset], dtype=torch.int64, device="cpu").view(
            torch.uint8
        )

    def set_state(self, new_state: torch.Tensor) -> DefaultGenerator:
        """Take over a seed and an offset, or what `torch.cuda.get_rng_state` gave."""
        if new_state.numel() != _STATE_BYTES:
            torch.random.set_rng_state(new_state)
            return self
        seed, offset = new_state.contiguous().view(torch.int64).tolist()
        super().manual_seed(seed % _UNSIGNED)
        self._offset = offset
        return self


GENERATOR = DefaultGenerator()
