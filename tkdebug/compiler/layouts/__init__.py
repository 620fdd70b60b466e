"""Linear layouts: where each element of a tensor lives in registers and shared memory.

`linear` is the algebra, `distributed` and `shared` the layouts that the hardware wants, `views`
layouts after shape operations, `conversion` how data gets from one layout to another (by shuffles
or through a swizzled buffer). `f2` is the linear algebra beneath. Nothing here knows
IR, dtypes or targets.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tkdebug.compiler.layouts.linear import (
    BLOCK,
    LANE,
    OFFSET,
    REGISTER,
    WARP,
    LayoutError,
    LinearLayout,
)

if TYPE_CHECKING:
    from tkdebug.compiler.layouts.conversion import (
        Conversion,
        NoConversion,
        RegisterMoves,
        SharedTrip,
        ShufflePlan,
        ShuffleRound,
        bank_conflicts,
        classify_conversion,
    )
    from tkdebug.compiler.layouts.distributed import (
        blocked,
        dot_operand,
        fma_operand,
        mma_v2,
        turning,
        wgmma,
    )
    from tkdebug.compiler.layouts.shared import SharedBanks, nvmma_shared
    from tkdebug.compiler.layouts.views import (
        broadcast_source,
        concatenate,
        concatenate_source,
        expand_dims,
        join,
        reshape,
        slice_layout,
        split,
        split_source,
        transpose,
    )

# Modules that load at first use, by name: types of values need `linear` alone.
_HOMES = {
    "conversion": (
        "Conversion",
        "NoConversion",
        "RegisterMoves",
        "SharedTrip",
        "ShufflePlan",
        "ShuffleRound",
        "bank_conflicts",
        "classify_conversion",
    ),
    "distributed": (
        "blocked",
        "dot_operand",
        "fma_operand",
        "mma_v2",
        "turning",
        "wgmma",
    ),
    "shared": ("SharedBanks", "nvmma_shared"),
    "views": (
        "broadcast_source",
        "concatenate",
        "concatenate_source",
        "expand_dims",
        "join",
        "reshape",
        "slice_layout",
        "split",
        "split_source",
        "transpose",
    ),
}


def __getattr__(name: str) -> object:
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return found


__all__ = [
    "BLOCK",
    "LANE",
    "OFFSET",
    "REGISTER",
    "WARP",
    "Conversion",
    "LayoutError",
    "LinearLayout",
    "NoConversion",
    "RegisterMoves",
    "SharedBanks",
    "SharedTrip",
    "ShufflePlan",
    "ShuffleRound",
    "bank_conflicts",
    "blocked",
    "broadcast_source",
    "classify_conversion",
    "concatenate",
    "concatenate_source",
    "dot_operand",
    "expand_dims",
    "fma_operand",
    "join",
    "mma_v2",
    "nvmma_shared",
    "reshape",
    "slice_layout",
    "split",
    "split_source",
    "transpose",
    "turning",
    "wgmma",
]
