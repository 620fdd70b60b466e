"""Every function of the language, by name.

`FAMILIES` is the one list of modules; each holds the functions of a family and the ops that they
emit. No other place lists names a second time.
"""

from __future__ import annotations

from tkdebug.compiler.ops import (
    atomics,
    block_pointers,
    control,
    conversion,
    cuda,
    debug,
    descriptors,
    elementwise,
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
from tkdebug.compiler.ops.spec import Builtin

FAMILIES = (
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
    conversion,
)

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
