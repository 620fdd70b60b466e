"""Functions applied element by element: `map_elementwise` and inline assembly.

The mapped function is a region over scalars, so that it may branch and loop on single elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tkdebug.compiler import dtypes as dt
from tkdebug.compiler.describe import as_given
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Block, Region
from tkdebug.compiler.ops import conversion
from tkdebug.compiler.ops.arguments import int_argument
from tkdebug.compiler.ops.emitter import Emitter
from tkdebug.compiler.ops.spec import Builtin, SemanticError
from tkdebug.compiler.tensor import tensor


def _emit_map_elementwise(
    emit: Emitter, scalar_fn: object, *args: object, pack: object = 1
) -> object:
    """Apply a jit function of scalars to every element.

    Args:
        emit: where to emit.
        scalar_fn: jit function that takes one scalar (with `pack`, `pack` scalars) of each tile,
            and returns one scalar (`pack` scalars) for each result; it may branch and loop.
        args: tiles, broadcast to one shape.
        pack: number of elements of each tile that one call processes; it divides the tile's
            elements. Which elements go together is unspecified.
    """
    count = int_argument(pack, "map_elementwise: pack", 1)
    if not args:
        raise SemanticError("map_elementwise must have at least 1 input tensor")
    tiles = conversion.broadcast_all(emit, *(conversion.to_tensor(emit, value) for value in args))
    shape = tiles[0].shape
    if tiles[0].numel % count:
        raise SemanticError(
            f"map_elementwise: pack {count} does not divide the {tiles[0].numel} elements"
        )
    block, results, is_single = _map_region(emit, scalar_fn, tiles, count)
    types = [value.type.scalar for value in results[::count]]
    for offset in range(1, count):
        if [value.type.scalar for value in results[offset::count]] != types:
            raise SemanticError("map_elementwise: the packed results have different types")
    result_types = [dt.block_type(type_, shape) if shape else type_ for type_ in types]
    op = emit.op(
        tt.MapElementwise,
        tiles,
        [type_.to_ir() for type_ in result_types],
        [Region([block])],
        pack=count,
    )
    out = tuple(tensor(v, type_) for v, type_ in zip(op.results, result_types, strict=True))
    return out[0] if is_single else out


def _map_region(
    emit: Emitter, scalar_fn: object, tiles: Sequence[tensor], pack: int
) -> tuple[Block, list[tensor], bool]:
    elements = [tile.type.scalar for tile in tiles for _ in range(pack)]
    block = Block([element.to_ir() for element in elements])
    arguments = [tensor(v, t) for v, t in zip(block.arguments, elements, strict=True)]
    with emit.builder.inside(block):
        returned = emit.call(scalar_fn, arguments)
        if returned is None:
            raise SemanticError("map_elementwise: the function must return a value, got None")
        is_single = not isinstance(returned, tuple | list)
        values = (returned,) if is_single else tuple(returned)
        results = [conversion.to_tensor(emit, value) for value in values]
        if len(results) % pack or not results:
            raise SemanticError(
                f"map_elementwise: the function gives {len(results)} values, "
                f"expected a multiple of pack {pack}"
            )
        for value in results:
            if value.type.is_block():
                raise SemanticError(
                    f"map_elementwise: the function must give scalars, got {as_given(value)}"
                )
        emit.op(tt.MapElementwiseReturn, results)
    return block, results, is_single


def _emit_inline_asm(
    emit: Emitter,
    asm: object,
    constraints: object,
    args: Any,
    dtype: Any,
    is_pure: object,
    pack: object,
) -> object:
    """Run inline PTX on every element.

    Interpreted, straight-line PTX of common instructions is run; the rest fails by name when it
    is reached.

    Args:
        emit: where to emit.
        asm: PTX text; `$0`, `$1`, … are the registers of the results, then of the arguments.
        constraints: LLVM's constraint string, such as "=r,r,r".
        args: tiles, broadcast to one shape.
        dtype: dtype of the result, or a tuple of them.
        is_pure: whether the assembly does nothing but compute its results.
        pack: elements processed by one instance; those below 32 bits share registers.
    """
    if not isinstance(asm, str) or not isinstance(constraints, str):
        raise SemanticError("inline_asm_elementwise: asm and constraints must be constant strings")
    count = int_argument(pack, "inline_asm_elementwise: pack", 1)
    several = isinstance(dtype, tuple | list)
    wanted = tuple(dtype) if several else (dtype,)
    if not wanted or not all(isinstance(item, dt.dtype) for item in wanted):
        raise SemanticError(
            f"inline_asm_elementwise: dtype must be a dtype or several, got {dtype!r}"
        )
    inputs = args if isinstance(args, tuple | list) else (args,)
    tiles = conversion.broadcast_all(emit, *(conversion.to_tensor(emit, value) for value in inputs))
    shape = tiles[0].shape if tiles else ()
    types = [dt.block_type(item, shape) if shape else item for item in wanted]
    op = emit.op(
        tt.ElementwiseInlineAsm,
        tiles,
        [type_.to_ir() for type_ in types],
        asm=asm,
        constraints=constraints,
        pack=count,
        pure=bool(is_pure),
    )
    out = tuple(tensor(v, type_) for v, type_ in zip(op.results, types, strict=True))
    return out if several else out[0]


_BUILTINS: tuple[Builtin, ...] = (
    Builtin("map_elementwise", _emit_map_elementwise),
    Builtin("inline_asm_elementwise", _emit_inline_asm),
)
LANGUAGE = {builtin.name: builtin for builtin in _BUILTINS}
