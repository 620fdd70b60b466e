"""Names of kernels that others launched, as people know them.

Kernels written in C++ come with the names of their object files. Responsible for taking those apart
(by the C++ library of this machine, where there is one) and for a shorter form of them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, lru_cache

_LIBRARIES = ("libstdc++.so.6", "libc++.1.dylib", "libc++.so.1")
_CACHED = 4096


@lru_cache(maxsize=_CACHED)
def demangled(name: str) -> str:
    """A C++ name as the source has it; any other name as it is."""
    demangle = _demangler() if name.startswith("_Z") else None
    return name if demangle is None else demangle(name) or name


@lru_cache(maxsize=_CACHED)
def short_name(name: str) -> str:
    """The name with its template arguments, without the types of its result and parameters."""
    full = demangled(name)
    if full == name:
        return name
    depth, start = 0, 0
    text = full.replace("(anonymous namespace)::", "")
    for place, character in enumerate(text):
        depth += {"<": 1, ">": -1}.get(character, 0)
        if depth == 0 and character == " ":
            start = place + 1
        elif depth == 0 and character == "(":
            return text[start:place]
    return text


def activity_name(kind: str, name: str, in_graph: bool = False) -> str:
    """What an activity is called in views."""
    plain = short_name(name) if kind == "kernel" else name if kind == name else f"{kind} {name}"
    return f"{plain} (CUDA graph)" if in_graph else plain


@cache
def _demangler() -> Callable[[str], str | None] | None:
    for name in _LIBRARIES:
        try:
            library = ctypes.CDLL(name)
            function = library["__cxa_demangle"]
        except (OSError, AttributeError):
            continue
        function.restype = ctypes.c_void_p
        function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        free = ctypes.CDLL(None).free
        free.argtypes, free.restype = [ctypes.c_void_p], None
        return lambda text: _demangle(function, free, text)
    return None


def _demangle(
    function: Callable[..., int | None], free: Callable[[int], None], name: str
) -> str | None:
    status = ctypes.c_int()
    address = function(name.encode(), None, None, ctypes.byref(status))
    if not address:
        return None
    try:
        return ctypes.string_at(address).decode("utf-8", "replace")
    finally:
        free(address)
