"""Facts: the elements of inputs that a wrong element depends on, and those that it should.

The program runs as Python on tensors (`screening`), the reference on the script's: for both,
autograd says which elements enter, and by which factor. If a derivative is no number, nothing is
said about its tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tkdebug.causes.launches import address_of
from tkdebug.causes.screening import Screening, flat_of

# A reference is only looked at if the launch's tensors have no more bytes than this.
_MOST_BYTES = 256 << 20
Derivatives = dict[str, Tensor]


def facts(
    screening: Screening,
    element: str,
    tensors: Mapping[str, Tensor],
    reference: Callable[[], Tensor] | None,
    worst: int,
) -> tuple[str, ...]:
    """Return the facts of an element's dependences, as sentences.

    Args:
        screening: the screening of the program that stored it.
        element: its name, such as "out[3, 17]".
        tensors: the script's, by the kernel's parameters.
        reference: computes the expected tensor; None if no function does.
        worst: position of the element in the flat result of the reference.
    """
    shown = {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}
    try:
        has = _of_kernel(screening, shown)
        should = {} if reference is None else _of_reference(reference, shown, worst)
    except Exception:  # what a reference raises is not the kernel's fault
        return ()
    has = {name: derivative for name, derivative in has.items() if _is_plain(derivative)}
    should = {name: derivative for name, derivative in should.items() if _is_plain(derivative)}
    if not any(bool(derivative.any()) for derivative in has.values()):
        return ()
    if not should:
        return (f"{element} depends on {_regions(has)}",)
    return tuple(_differences(element, has, should))


def _of_kernel(screening: Screening, tensors: Mapping[str, Tensor]) -> Derivatives:
    leaves: dict[int, Tensor] = {}

    def leaf(flat: Tensor) -> Tensor:
        made = leaves.get(flat.data_ptr())
        if made is None:
            made = leaves[flat.data_ptr()] = flat.detach().clone().requires_grad_()
        return made

    element, flats = screening.element_of(leaf)
    by_flat = _derivatives(element, leaves)
    return {
        name: _view(by_flat[flats[name].data_ptr()], tensor)
        for name, tensor in tensors.items()
        if name in flats and flats[name].data_ptr() in by_flat
    }


class _Inputs(TorchFunctionMode):
    """Replaces float tensors of some allocations by autograd leaves in calls of torch."""

    def __init__(self, addresses: Iterable[int]) -> None:
        super().__init__()
        self._addresses = set(addresses)
        self.leaves: dict[int, Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch with leaves in place of the tensors."""
        args, kwargs = torch.utils._pytree.tree_map(self._leafed, (args, kwargs or {}))  # noqa: SLF001
        return func(*args, **kwargs)

    def _leafed(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point() or value.requires_grad:
            return value
        with torch._C.DisableTorchFunction():  # noqa: SLF001
            address = address_of(value)
            if address not in self._addresses:
                return value
            leaf = self.leaves.get(address)
            if leaf is None:
                leaf = flat_of(value).detach().clone().requires_grad_()
                self.leaves[address] = leaf
            return leaf.as_strided(tuple(value.shape), value.stride(), int(value.storage_offset()))


def _of_reference(
    reference: Callable[[], Tensor], tensors: Mapping[str, Tensor], worst: int
) -> Derivatives:
    if sum(tensor.untyped_storage().nbytes() for tensor in tensors.values()) > _MOST_BYTES:
        return {}
    inputs = _Inputs(address_of(tensor) for tensor in tensors.values())
    # The reference is the script's, and so are the modes around it.
    with torch._C._EnableTorchFunction(), torch.enable_grad(), inputs:  # noqa: SLF001
        result = reference()
    if not isinstance(result, Tensor) or not result.requires_grad:
        return {}
    by_address = _derivatives(result.reshape(-1)[worst], inputs.leaves)
    return {
        name: _view(by_address[address_of(tensor)], tensor)
        for name, tensor in tensors.items()
        if address_of(tensor) in by_address
    }


def _derivatives(element: Tensor, leaves: Mapping[int, Tensor]) -> dict[int, Tensor]:
    if not element.requires_grad:
        return {}
    found = torch.autograd.grad(element, list(leaves.values()), allow_unused=True)
    return {
        address: torch.zeros_like(leaf) if derivative is None else derivative
        for (address, leaf), derivative in zip(leaves.items(), found, strict=True)
    }


def _view(flat: Tensor, tensor: Tensor) -> Tensor:
    """Return a tensor's part of a flat tensor over its whole allocation, as fp64 on the CPU."""
    view = flat.as_strided(tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))
    return view.detach().cpu().to(torch.float64)


def _is_plain(derivative: Tensor) -> bool:
    return bool(derivative.isfinite().all())


def _regions(derivatives: Mapping[str, Tensor]) -> str:
    texts = [region(name, derivative != 0) for name, derivative in derivatives.items()]
    return ", ".join(text for text in texts if text) or "no input"


def _differences(element: str, has: Derivatives, should: Derivatives) -> Iterable[str]:
    both = [name for name in should if name in has]
    other = [n for n in both if not torch.equal(has[n] != 0, should[n] != 0)]
    if other:
        ours, wanted = ({n: side[n] for n in other} for side in (has, should))
        yield f"{element} depends on {_regions(ours)}; it should on {_regions(wanted)}"
        return
    yield f"{element} depends on {_regions({n: has[n] for n in both})}, as it should"
    for name in both:
        chosen = should[name] != 0
        if not bool(chosen.any()):
            continue
        ratios = has[name][chosen] / should[name][chosen]
        ratio = float(ratios.median())
        is_one = math.isclose(ratio, 1.0, rel_tol=1e-3)
        if not is_one and bool(torch.isclose(ratios, ratios.median(), rtol=1e-3).all()):
            yield f"it follows {name} {ratio:.6g} times as much as it should"


def region(name: str, chosen: Tensor) -> str:
    """Return the text of the slice that holds some elements of a tensor; "" if there are none.

    If the slice holds others too, the text begins with the number of elements.

    Args:
        name: the name of the tensor.
        chosen: bool, of its shape.
    """
    if not bool(chosen.any()):
        return ""
    if bool(chosen.all()):
        return name
    axes, parts, count = range(chosen.dim()), [], 1
    for axis in axes:
        others = [other for other in axes if other != axis]
        places = (chosen.any(dim=others) if others else chosen).nonzero().reshape(-1).tolist()
        text, covered = _slice(places)
        parts.append(text)
        count *= covered
    shown = f"{name}[{', '.join(parts)}]"
    number = int(chosen.sum())
    return shown if count == number else f"{number:,} elements of {shown}"


def _slice(places: list[int]) -> tuple[str, int]:
    """Return the text of the smallest slice of all places, and its number of elements."""
    first, last = places[0], places[-1]
    if len(places) == 1:
        return str(first), 1
    steps = {after - before for before, after in pairwise(places)}
    if len(steps) == 1 and steps != {1}:
        step = steps.pop()
        return f"{first}:{last + 1}:{step}", len(places)
    return f"{first}:{last + 1}", last + 1 - first
