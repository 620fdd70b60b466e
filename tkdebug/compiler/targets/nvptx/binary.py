"""A generated kernel, with the fields that only `runtime.cuda` reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tkdebug.compiler.analysis.tensor_maps import MadeMap, TensorMap
    from tkdebug.compiler.sites.checks import CheckPlan, CheckSite


@dataclass(frozen=True, slots=True)
class Binary:
    """A kernel's machine code and what it needs.

    Attributes:
        llvm_ir: text.
        ptx: text.
        cubin: the ELF image.
        entry: name of the kernel in it.
        target: name of the architecture, such as sm_90a.
        threads: of a block.
        shared_bytes: dynamic shared memory of a block.
        registers: of a thread.
        spill_bytes: of a thread, that went to local memory.
        tensor_maps: by the position of the parameter, for descriptors that are passed as such.
        made_maps: those that the launch makes of its arguments, in parameters behind all others.
        workspace_bytes: global memory that each program needs for tensor maps it makes itself; the
            launch allocates it, and passes its address in a parameter behind all others.
        ptx_ops: line (1-based) of the PTX -> id of the GPU IR op it is of.
        checks: what reports of a checked kernel are read by; None of a bare one. Behind all other
            parameters, a checked kernel takes the address of the table that it reports to, and of
            each of `check_bounds` the first and the end byte address, and how many elements there
            are from its pointer on.
    """

    llvm_ir: str
    ptx: str
    cubin: bytes
    entry: str
    target: str
    threads: int
    shared_bytes: int
    registers: int
    spill_bytes: int
    tensor_maps: Mapping[int, TensorMap] = field(default_factory=dict)
    made_maps: tuple[MadeMap, ...] = ()
    workspace_bytes: int = 0
    ptx_ops: Mapping[int, int] = field(default_factory=dict)
    checks: CheckPlan | None = None

    @property
    def check_sites(self) -> tuple[CheckSite, ...]:
        """The sites of a checked kernel, by number."""
        return () if self.checks is None else self.checks.sites

    @property
    def check_bounds(self) -> tuple[str, ...]:
        """The parameters whose tensors' bounds are passed, in that order."""
        return () if self.checks is None else self.checks.bounds

    @property
    def image(self) -> bytes:
        """The image that is loaded."""
        return self.cubin

    def stages(self) -> Mapping[str, Callable[[], str | bytes]]:
        """Functions that make each stage after the GPU IR, by its name in `kernel.asm`."""
        return {
            "llir": lambda: self.llvm_ir,
            "ptx": lambda: self.ptx,
            "cubin": lambda: self.cubin,
            "sass": self.sass,
        }

    def sass(self) -> str:
        """The machine code as text.

        Raises:
            TkError: nvdisasm is not installed.
        """
        from tkdebug.linemap.nvidia.disassembly import disassemble

        return disassemble(self.cubin)
