"""Layouts as text: `#ttg.linear<{…}>` in full, `#layout0` by an alias at the top of a module.

The full form is Triton's, with `outs` added where sizes and names do not follow from the bases.
The reader is `attribute_parser.AttributeParser.layout`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tkdebug.compiler.layouts.linear import OFFSET, LinearLayout

# How a layout is written inside a type: in full, or by the alias it has in a text.
LayoutText = Callable[[LinearLayout], str]


def layout_text(layout: LinearLayout) -> str:
    """A layout in full: `#ttg.linear<{register = [[0, 1], …], lane = […], …}>`."""
    bases = {name: layout.bases(name) for name in layout.in_dims}
    items = [f"{name} = {_vectors(vectors)}" for name, vectors in bases.items()]
    if implied_outs(bases) != layout.outs:
        outs = ", ".join(f"{name} = {size}" for name, size in layout.outs)
        items.append(f"outs = {{{outs}}}")
    kind = "shared_linear" if OFFSET in layout.in_dims else "linear"
    return f"#ttg.{kind}<{{{', '.join(items)}}}>"


def implied_outs(
    bases: Mapping[str, Sequence[Sequence[int]]],
) -> tuple[tuple[str, int], ...]:
    """The output dimensions that a layout with these bases has if it reaches all of them."""
    vectors = [vector for vectors in bases.values() for vector in vectors]
    sizes = [1 << max(coordinates).bit_length() for coordinates in zip(*vectors, strict=True)]
    return tuple((f"dim{axis}", size) for axis, size in enumerate(sizes))


def _vectors(vectors: Sequence[Sequence[int]]) -> str:
    return "[" + ", ".join(f"[{', '.join(map(str, vector))}]" for vector in vectors) + "]"


class LayoutAliases:
    """The names of layouts in one text, numbered in the order in which they are first asked for."""

    def __init__(self) -> None:
        self._names: dict[LinearLayout, str] = {}
        self._counts: dict[str, int] = {}

    def __call__(self, layout: LinearLayout) -> str:
        """The alias of `layout`."""
        name = self._names.get(layout)
        if name is None:
            kind = "shared" if OFFSET in layout.in_dims else "layout"
            number = self._counts.get(kind, 0)
            self._counts[kind] = number + 1
            name = self._names[layout] = f"#{kind}{number}"
        return name

    def definition(self, layout: LinearLayout) -> str:
        """The line that gives `layout` its alias."""
        return f"{self(layout)} = {layout_text(layout)}"
