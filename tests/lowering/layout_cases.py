"""Layouts that ops across threads are tried on, with their warps, and the text of tiles in them."""

from tkdebug.compiler.ir.types import layout_text
from tkdebug.compiler.layouts import (
    LANE,
    REGISTER,
    WARP,
    LinearLayout,
    blocked,
    dot_operand,
    mma_v2,
    wgmma,
)

LAYOUTS = {
    "one warp": (1, blocked((4,), (32,), (1,), (0,), (256,))),
    "four warps": (4, blocked((2,), (32,), (4,), (0,), (1024,))),
    "copies": (4, blocked((1,), (32,), (4,), (0,), (16,))),
    "rows": (4, blocked((1, 4), (1, 32), (4, 1), (1, 0), (8, 256))),
    "square": (4, blocked((2, 2), (8, 4), (2, 2), (1, 0), (32, 32))),
    "wide": (8, blocked((1, 4), (1, 32), (1, 8), (1, 0), (2, 2048))),
    "cube": (2, blocked((1, 2, 2), (2, 4, 4), (2, 1, 1), (2, 1, 0), (4, 16, 8))),
    "columns": (8, blocked((1, 16), (16, 2), (8, 1), (1, 0), (128, 32))),
    "many columns": (4, blocked((1, 32), (4, 8), (4, 1), (1, 0), (32, 512))),
    "accumulators": (4, mma_v2((32, 32), (2, 2))),
    "warp group": (4, wgmma((64, 64), (4, 1), 64)),
    "operand": (4, dot_operand(mma_v2((32, 32), (2, 2)), 0, 2, (32, 32))),
    "mixed": (
        2,
        LinearLayout.of(
            {
                REGISTER: [(1, 0), (0, 4)],
                LANE: [(1, 1), (0, 2), (2, 2), (4, 4), (0, 8)],
                WARP: [(8, 3)],
            },
            {"dim0": 16, "dim1": 16},
        ),
    ),
}
CASES = [(name, axis) for name, (_, ll) in LAYOUTS.items() for axis in range(len(ll.outs))]


def tile_text(layout, element):
    return f"tensor<{'x'.join(map(str, layout.shape))}x{element}, {layout_text(layout)}>"
