"""References: functions that say what a launch's outputs should be, from its arguments."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tkdebug.errors import UsageError, instead_of
from tkdebug.interpreter.memory.host_views import host_view

Reference = Callable[..., Any]


class UnfitReferenceError(UsageError):
    """A reference that cannot be called, fails, is not repeatable, or gives no tensors."""


def reference_by_name(text: str, folder: Path | None = None) -> Reference:
    """Return the function that `module:function` names.

    Args:
        text: as it was typed.
        folder: where modules are looked for first, as for a script that is there.

    Raises:
        UsageError: there is none.
    """
    module_name, colon, name = text.partition(":")
    if not colon or not module_name or not name:
        raise UsageError(f"--reference {text}: expected module:function")
    before = list(sys.path)
    if folder is not None:
        sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        reason = str(error) or type(error).__name__
        message = f"--reference {text}: {module_name} cannot be imported: {reason}"
        raise UsageError(message) from error
    finally:
        sys.path[:] = before
    function = getattr(module, name, None)
    if not callable(function):
        names = [each for each in vars(module) if callable(getattr(module, each))]
        raise UsageError(
            f"--reference {text}: {module_name} has no function {name}{instead_of(name, names)}"
        )
    return function  # type: ignore[no-any-return]


class Answers:
    """The answers of a reference to one launch.

    Attributes:
        unfit: why it could not be compared with an output, "" if it could.
    """

    def __init__(self, reference: Reference, tensors: Mapping[str, Tensor]) -> None:
        self._reference = reference
        self._tensors = tensors
        self.unfit = ""

    @classmethod
    def of(cls, reference: Reference, given: Mapping[str, Any]) -> Answers:
        """Return the answers of a reference, which is called twice: it has to be repeatable.

        Args:
            reference: its parameters are some of the kernel's, and it gives a tensor, or a mapping
                of tensors by the names of parameters.
            given: the launch's arguments by name, before it runs.

        Raises:
            UnfitReferenceError: it fails, gives no tensor, or something else the second time.
        """
        first, again = (_called(reference, given) for _ in range(2))
        if first.keys() != again.keys() or not all(map(_are_same, first.values(), again.values())):
            raise UnfitReferenceError(
                f"{_name(reference)}: gives another result when it is called again; "
                "a reference has to be repeatable"
            )
        return cls(reference, first)

    def fitting(self, name: str, output: Tensor, others: int) -> Tensor | None:
        """Return the reference's tensor for an output; None if there is none that fits.

        Args:
            name: the name of the output's parameter.
            output: the tensor, in host memory where the stand-in calls it CUDA.
            others: how many outputs there are beside it.
        """
        answer = self._tensors.get(name, self._tensors.get(""))
        is_named = name in self._tensors
        if answer is None or (others and not is_named and answer.shape != output.shape):
            return None
        what = f"{_name(self._reference)}: of {name}"
        if answer.shape != output.shape:
            self.unfit = f"{what} has shape {tuple(answer.shape)}, expected {tuple(output.shape)}"
        elif answer.is_floating_point() != output.is_floating_point():
            self.unfit = f"{what} is {answer.dtype}, expected {output.dtype}"
        elif host_view(answer).device.type != output.device.type:
            self.unfit = f"{what} is on {answer.device}, expected {output.device}"
        return None if self.unfit else answer


def applied(reference: Reference, given: Mapping[str, Any], name: str) -> Tensor:
    """Return a reference's tensor for an output, computed from the arguments, not from copies.

    Args:
        reference: one that fits.
        given: the launch's arguments by name.
        name: the name of the output's parameter.
    """
    answers = _called(reference, given, copies=False)
    return answers[name] if name in answers else answers[""]


def _called(
    reference: Reference, given: Mapping[str, Any], copies: bool = True
) -> dict[str, Tensor]:
    parameters = inspect.signature(reference).parameters
    takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    missing = [
        name
        for name, each in parameters.items()
        if name not in given
        and each.default is inspect.Parameter.empty
        and each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY, each.POSITIONAL_ONLY)
    ]
    if missing:
        raise UnfitReferenceError(
            f"{_name(reference)}: the kernel has no parameter {', '.join(missing)}; "
            f"it has {', '.join(given)}"
        )
    chosen = given if takes_all else {name: given[name] for name in parameters if name in given}
    if copies:
        chosen = {
            name: value.detach().clone() if isinstance(value, Tensor) else value
            for name, value in chosen.items()
        }
    try:
        answer = reference(**chosen)
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise UnfitReferenceError(f"{_name(reference)}: failed: {reason}") from error
    if isinstance(answer, Tensor):
        return {"": answer.detach() if copies else answer}
    if isinstance(answer, Mapping) and all(isinstance(each, Tensor) for each in answer.values()):
        return {str(name): each.detach() if copies else each for name, each in answer.items()}
    raise UnfitReferenceError(
        f"{_name(reference)}: gives {type(answer).__name__}; expected a tensor, or a dict of "
        "tensors by the names of the kernel's parameters"
    )


def _are_same(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype or a.device != b.device:
        return False
    if a.is_meta:
        return True  # which has no elements
    return bool(torch.equal(a, b) or torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)))


def _name(reference: Reference) -> str:
    module, name = getattr(reference, "__module__", ""), getattr(reference, "__name__", "")
    return f"reference {module}:{name}" if module else f"reference {name or reference!r}"
