"""Errors of launches, each also of the builtin type that upstream raises there."""

from __future__ import annotations

from tkdebug.errors import LaunchError, TkError, UnsupportedError
from tkdebug.terminal.text import visible


class GridError(LaunchError, ValueError):
    """The grid is not one to three non-negative ints."""


class ArgumentTypeError(LaunchError, TypeError):
    """A launch lacks an argument, has one too many, or one that no kernel can take."""


class ArgumentOverflowError(LaunchError, OverflowError):
    """An int argument needs more than 64 bits."""


class UnknownOptionError(LaunchError, KeyError):
    """A keyword of a launch is neither a parameter of the kernel nor an option."""

    def __str__(self) -> str:
        return visible(str(self.args[0]))


class OptionValueError(LaunchError, ValueError, AssertionError):
    """A launch option has an illegal value, for which upstream asserts or raises."""


class OutsideKernelError(TkError, RuntimeError):
    """A kernel was called like a function."""


class GlobalChangedError(LaunchError, RuntimeError):
    """A global that a kernel was compiled with has another value now."""


class ConflictingParametersError(LaunchError, ValueError):
    """A launch gives a value for a parameter that the tuner sets."""


class DescriptorError(LaunchError, ValueError):
    """A tensor descriptor breaks a rule of the hardware's."""


class MissingArtifactError(UnsupportedError, KeyError):
    """A compiled kernel has no such stage."""

    def __str__(self) -> str:
        return visible(str(self.args[0]))


class InterpreterError(TkError):
    """An interpreted kernel failed."""


class AutotunerError(TkError):
    """A tuner was left without a configuration."""

    def __str__(self) -> str:
        return f"Autotuner error: {super().__str__()}"


class UnknownNameError(TkError, ValueError):
    """A decorator names a parameter that the kernel does not have."""


class CudaError(TkError, RuntimeError):
    """The CUDA driver failed.

    Args:
        message: the action, the driver's name for the failure, the fix.
        status: the driver's number for it; 0 when it is not the driver's.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        self.status = status
        super().__init__(message)

    def add(self, detail: str) -> None:
        """Append to the message."""
        self.args = (f"{self.args[0]}; {detail}",)


class NoDeviceError(TkError, RuntimeError):
    """A native launch, and no GPU that it could run on."""


class PointerError(LaunchError, ValueError):
    """A tensor whose memory the kernel's device cannot access."""


class PTXASError(TkError):
    """The PTX assembler refused a kernel."""

    def __str__(self) -> str:
        return f"PTXAS error: {super().__str__()}"


class OutOfResources(TkError):
    """A kernel needs more of a resource than the device has.

    Args:
        required: the amount that it needs.
        limit: the amount that the device has.
        name: the resource, e.g. "shared memory".

    Attributes:
        place: `file:line` of the kernel, "" while that is not known.
        source_line: text of that line.
        advice: what to lower.
    """

    def __init__(self, required: int, limit: int, name: str) -> None:
        self.required = required
        self.limit = limit
        self.name = name
        self.place = ""
        self.source_line = ""
        self.advice = _WHAT_TO_LOWER.get(name, "smaller blocks may help")
        # All three stay in `args`: that is what pickling gives back to the constructor.
        super().__init__(required, limit, name)

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        line = f"\n    {self.source_line}" if self.source_line else ""
        return visible(
            f"{where}out of resource: {self.name}, Required: {self.required}, "
            f"Hardware limit: {self.limit}; {self.advice}{line}"
        )


_WHAT_TO_LOWER = {
    "shared memory": "smaller blocks or a lower num_stages may help",
    "threads": "lower num_warps",
    "registers": "lower num_warps, set maxnreg, or use smaller blocks",
}
