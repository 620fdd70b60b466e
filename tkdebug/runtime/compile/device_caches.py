"""What upstream calls `device_caches`: a jit function's compiled kernels, by device."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping

from tkdebug.runtime.launch.compiled_kernel import CompiledKernel

Key = tuple[Hashable, ...]


class DeviceCaches(Mapping[int, tuple[dict[Key, CompiledKernel]]]):
    """The compiled kernels under the number of each device: all the same ones.

    A native launch has its device in the key; under interpret kernels do not depend on it.
    """

    def __init__(self, kernels: dict[Key, CompiledKernel]) -> None:
        self._by_key = kernels

    def __getitem__(self, device: int) -> tuple[dict[Key, CompiledKernel]]:
        return (self._by_key,)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __len__(self) -> int:
        import torch  # here, as `import tkdebug` is quick without it

        return max(1, torch.cuda.device_count())

    def clear(self) -> None:
        """Forget all compiled kernels."""
        self._by_key.clear()
