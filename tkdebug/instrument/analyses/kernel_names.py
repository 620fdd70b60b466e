"""Names by which people tell kernels apart.

Kernels that others launched, written in C++, come with the names of their object files. Responsible
for demangling those (by the C++ library of this machine, if there is one), for a shorter form of
them, and for the parameters in which specialisations of one kernel differ.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache

from tkdebug.instrument.records import RecordedKernel

_LIBRARIES = ("libstdc++.so.6", "libc++.1.dylib", "libc++.so.1")
_CACHED = 4096
_OPENING, _CLOSING = "([{<", ")]}>"


@lru_cache(maxsize=_CACHED)
def demangled(name: str) -> str:
    """A C++ name as the source has it; any other name as it is."""
    demangle = _demangler() if name.startswith("_Z") else None
    return name if demangle is None else demangle(name) or name


@lru_cache(maxsize=_CACHED)
def short_name(name: str) -> str:
    """Return a demangled name without result and parameter types; another name as it is.

    Template arguments stay, and `(anonymous namespace)::` goes.
    """
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
    """Return the name of an activity in views."""
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


def differing_parts(kernels: Sequence[RecordedKernel]) -> dict[str, str]:
    """Return by hash the parameters and options in which kernels of one name differ.

    A kernel that differs in none has "". The architecture is not among them.
    """
    by_name: dict[str, dict[str, Mapping[str, str]]] = {}
    for kernel in kernels:
        by_name.setdefault(kernel.name, {})[kernel.hash] = _parts(kernel)
    found = {}
    for alike in by_name.values():
        seen: dict[str, set[str]] = {}
        for parts in alike.values():
            for name, text in parts.items():
                seen.setdefault(name, set()).add(text)
        # A parameter or option that only some kernels have differs, too.
        common = set.intersection(*(set(parts) for parts in alike.values()))
        differing = {name for name, texts in seen.items() if len(texts) > 1 or name not in common}
        for hash_, parts in alike.items():
            found[hash_] = ", ".join(text for name, text in parts.items() if name in differing)
    return found


def _parts(kernel: RecordedKernel) -> dict[str, str]:
    """Each parameter and option by its name, as text."""
    parts = {}
    for parameter in _split(kernel.signature.strip().removeprefix("(").removesuffix(")")):
        name = parameter.partition(":")[0].partition("=")[0].strip()
        value = parameter.partition(": constexpr = ")[2]
        parts[name] = f"{name}={value}" if value else parameter
    for option, chosen in kernel.options.items():
        if option != "arch":
            parts.setdefault(option, f"{option}={chosen}")
    return parts


def _split(parameters: str) -> list[str]:
    """Split parameters at the commas outside of brackets and strings."""
    found, depth, quote, begin = [], 0, "", 0
    for index, character in enumerate(parameters):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth = max(0, depth - 1)
        elif character == "," and not depth:
            found.append(parameters[begin:index].strip())
            begin = index + 1
    found.append(parameters[begin:].strip())
    return [text for text in found if text]
