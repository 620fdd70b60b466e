"""Origins of a kernel's ops in all stages, which line tables are made of."""

from __future__ import annotations

from dataclasses import dataclass

from tkdebug.errors import Frame

Frames = tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class OpPlace:
    """One op of a kernel.

    Attributes:
        id: unique in the kernel, the same in all stages.
        tile_name: its name, such as tt.load, in the Tile IR after its passes; None if it is not
            there.
        gpu_name: its name in the GPU IR that was lowered; passes may rename an op and keep its id.
        chains: its source places, each a call chain, outermost first; the first is the one shown,
            the others came by fusion (common subexpressions and the like).
        column: 1-based, of the first place; 0 when unknown.
        origins: ids of the Tile IR ops that it came from; its own if it is one of them.
        tile_chains: its places in Tile IR, if GPU passes have changed them; () otherwise.
    """

    id: int
    tile_name: str | None
    gpu_name: str | None
    chains: tuple[Frames, ...]
    column: int = 0
    origins: tuple[int, ...] = ()
    tile_chains: tuple[Frames, ...] = ()

    @property
    def name(self) -> str:
        """The last name."""
        return self.gpu_name or self.tile_name or ""

    def is_on(self, file: str, line: int) -> bool:
        """Whether one of its places, or a call on the way there, is on that line."""
        chains = (*self.chains, *self.tile_chains)
        return any(f.line == line and f.file == file for chain in chains for f in chain)
