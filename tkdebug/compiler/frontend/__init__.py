"""Python AST to Tile IR, with the language's semantics.

Invariant: every op carries the line and column it came from, with the chain of inlined calls.
"""

from tkdebug.compiler.frontend.arguments import ArgSpec, Constant, flatten_names, flatten_types
from tkdebug.compiler.frontend.compile import TileModule, compile_to_tile_ir
from tkdebug.compiler.frontend.scope import UsedGlobal
from tkdebug.compiler.frontend.source import KernelSource

__all__ = [
    "ArgSpec",
    "Constant",
    "KernelSource",
    "TileModule",
    "UsedGlobal",
    "compile_to_tile_ir",
    "flatten_names",
    "flatten_types",
]
