"""Every function of the language, by name.

`FAMILIES` is the only list of modules; each defines the functions of one family, with their names.
No other place lists the names a second time.
"""

from __future__ import annotations

from tkdebug.compiler.ops import (
    atomics,
    conversion,
    debug,
    descriptors,
    elementwise,
    extra,
    linalg,
    math,
    memory,
    program,
    random,
    reduce,
    shape,
)
from tkdebug.compiler.ops.spec import Builtin

FAMILIES = (
    math,
    shape,
    memory,
    descriptors,
    linalg,
    reduce,
    atomics,
    random,
    program,
    debug,
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
    "tl.extra.libdevice": extra.LIBDEVICE,
    "tl.extra.cuda": extra.CUDA,
}
