"""Peak rates of NVIDIA's GPUs with tensor cores, as their data sheets give them (dense)."""

from __future__ import annotations

from tkdebug.instrument.profiling import ProfileError

WIDTHS = (8, 16, 32, 64)
_A100_FLOPS8 = 624e12
_L40_FLOPS8 = 330.3e12
# An H100 PCIe: 1513 TFLOP/s of fp8 with 114 multiprocessors at 1755 MHz.
_H100_FLOPS8, _H100_SMS, _H100_KHZ = 1513e12, 114, 1755e3
# fp8 operations that a multiprocessor of Blackwell makes in a cycle.
_BLACKWELL_FLOPS8 = 16384


def max_flops(device_type: str, arch: str, width: int, num_sms: int, clock_rate: float) -> float:
    """Return the most operations a second on numbers of `width` bits.

    Args:
        device_type: CUDA.
        arch: compute capability times ten, as text.
        width: in bits.
        num_sms: multiprocessors.
        clock_rate: in kHz.

    Raises:
        ProfileError: no peak is known.
    """
    if device_type != "CUDA":
        raise ProfileError(f"Unsupported device type: {device_type}; peak rates are known of CUDA")
    match str(arch):
        case "80":
            flops8 = _A100_FLOPS8
        case "89":
            flops8 = _L40_FLOPS8
        case "90":
            flops8 = _H100_FLOPS8 * (num_sms / _H100_SMS) * (clock_rate / _H100_KHZ)
        case "100":
            flops8 = num_sms * _BLACKWELL_FLOPS8 * clock_rate * 1e3
        case _:
            raise ProfileError(
                f"Unsupported architecture: {arch}; peak rates are known of 80, 89, 90, 100"
            )
    return flops8 * 8 / width


def max_bps(device_type: str, arch: str, bus_width: int, memory_clock_rate: float) -> float:
    """Return the most bytes a second from memory.

    Args:
        device_type: CUDA.
        arch: compute capability times ten, as text.
        bus_width: in bits.
        memory_clock_rate: in kHz; two bits are moved on each line in a cycle.

    Raises:
        ProfileError: no peak is known.
    """
    if device_type != "CUDA":
        raise ProfileError(f"Unsupported device type: {device_type}; peak rates are known of CUDA")
    return 2 * bus_width * memory_clock_rate * 1e3 / 8
