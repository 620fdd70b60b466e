"""In what specialisations of one kernel differ: a few of their parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tkdebug.instrument.records import RecordedKernel

_OPENING, _CLOSING = "([{<", ")]}>"


def differing_parts(kernels: Sequence[RecordedKernel]) -> dict[str, str]:
    """By hash, the parameters and options in which kernels of one name differ; "" where none do.

    The architecture is left to callers.
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
        # They differ, too, in what only some have, such as an option.
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
    """Cut at the commas outside of brackets and strings."""
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
