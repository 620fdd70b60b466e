"""Properties of the stand-in's CUDA device: one H200, as torch's properties record has it.

The numbers are a real device's, so that scripts which size their launches by them (programs per
multiprocessor, shared memory per block) take the same branch as on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

CAPABILITY = (9, 0)


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """The fields of torch's `_CudaDeviceProperties`; sizes in bytes, rates in kHz."""

    name: str = "NVIDIA H200"
    major: int = CAPABILITY[0]
    minor: int = CAPABILITY[1]
    total_memory: int = 150_110_011_392
    multi_processor_count: int = 132
    warp_size: int = 32
    max_threads_per_block: int = 1024
    max_threads_per_multi_processor: int = 2048
    regs_per_multiprocessor: int = 65536
    shared_memory_per_block: int = 49152
    shared_memory_per_block_optin: int = 232448
    shared_memory_per_multiprocessor: int = 233472
    L2_cache_size: int = 62914560
    clock_rate: int = 1_980_000
    memory_clock_rate: int = 3_201_000
    memory_bus_width: int = 6144
    is_integrated: int = 0
    is_multi_gpu_board: int = 0
    pci_bus_id: int = 0
    pci_device_id: int = 0
    pci_domain_id: int = 0
    uuid: str = "00000000-0000-0000-0000-000000000000"

    @property
    def gcnArchName(self) -> str:
        """The name of the device, which torch's builds for CUDA return here, too."""
        return self.name

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // 2**20}MB, "
            f"multi_processor_count={self.multi_processor_count}, uuid={self.uuid}, "
            f"L2_cache_size={self.L2_cache_size // 2**20}MB)"
        )


PROPERTIES = DeviceProperties()
