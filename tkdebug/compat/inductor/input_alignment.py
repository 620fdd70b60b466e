"""Inductor's look at the alignment of a graph's inputs, which each call of the graph takes.

It asks tensors for their addresses, which are noted where checks want to know what a script has
stored in memory. No script stores these, and to note one takes longer than the whole look.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tkdebug.compat.replacements import Replacements


def look_unnoted(replacements: Replacements) -> None:
    """Have Inductor look at aligned inputs below what scripts call."""
    import torch
    from torch._inductor import compile_fx, cudagraph_trees, utils

    copy_misaligned: Any = utils.copy_misaligned_inputs
    data_ptr = torch._C.TensorBase.data_ptr  # noqa: SLF001  (as launches do)
    alignment = utils.ALIGNMENT

    @functools.wraps(copy_misaligned)
    def copied(inputs: list[Any], places: Sequence[int], *rest: Any, **options: Any) -> Any:
        try:
            for place in places:
                if data_ptr(inputs[place]) % alignment:
                    break
            else:
                return [], []
        except TypeError:
            pass  # no tensor, which torch says itself
        return copy_misaligned(inputs, places, *rest, **options)

    for module in (utils, compile_fx, cudagraph_trees):
        replacements.set(module, "copy_misaligned_inputs", copied)
