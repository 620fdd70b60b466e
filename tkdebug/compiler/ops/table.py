"""The op table: every op of the IR and every function of the language, by name.

`FAMILIES` is the one list of modules; each holds its ops and the language functions that emit
them. No other place lists names a second time.
"""

from __future__ import annotations

from tkdebug.compiler.ops import (
    arith,
    atomics,
    block_pointers,
    bulk_copies,
    control,
    conversion,
    cuda,
    debug,
    descriptors,
    elementwise,
    gpu,
    indexing,
    libdevice,
    linalg,
    math,
    memory,
    polling,
    program,
    random,
    reduce,
    scaled,
    shape,
    sorting,
)
from tkdebug.compiler.ops.spec import Builtin, OpSpec

FAMILIES = (
    arith,
    math,
    shape,
    memory,
    block_pointers,
    descriptors,
    linalg,
    scaled,
    reduce,
    indexing,
    sorting,
    atomics,
    polling,
    random,
    program,
    debug,
    control,
    elementwise,
    libdevice,
    cuda,
    conversion,
    gpu,
    bulk_copies,
)

OPS: dict[str, OpSpec] = {spec.name: spec for family in FAMILIES for spec in family.OPS}
LANGUAGE: dict[str, Builtin] = {
    name: builtin for family in FAMILIES for name, builtin in family.LANGUAGE.items()
}
# Functions that are in modules below `tl`.
NAMESPACES: dict[str, dict[str, Builtin]] = {
    "tl": LANGUAGE,
    "tl.core": conversion.BUILTINS,
    "tl.extra.libdevice": libdevice.BUILTINS,
    "tl.extra.cuda": cuda.BUILTINS,
}
