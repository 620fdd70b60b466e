"""Verdicts about kernels: right, wrong with the smallest example, or undecided and why."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any


def verify(
    reference: Callable[..., Any],
    *,
    inputs: Callable[[], Sequence[Any]],
    init: Sequence[Any] = (),
    seconds: float = 20.0,
    cases: int = 100,
    seed: int = 0,
    deterministic: bool = False,
    batch_invariant: bool = False,
) -> Callable[[Callable[..., Any]], Callable[[], None]]:
    """Return a decorator that makes a test of a function, or of a class of modules, with kernels.

    The test calls the candidate and the reference on inputs derived from the example's, as
    `tkdebug verify` does, in this process. It fails unless the verdict is "right".

    Args:
        reference: computes the expected result of the same arguments, in plain torch.
        inputs: returns the example's arguments.
        init: constructor arguments, if the candidate and the reference are classes.
        seconds: the processor time, at most.
        cases: the number of cases that are tried at most.
        seed: the seed of the search.
        deterministic: whether the same call must give the same bits.
        batch_invariant: whether rows must have the same bits in other batches.
    """

    def decorated(candidate: Callable[..., Any]) -> Callable[[], None]:
        def test() -> None:
            # Torch and the interpreter: nothing that decorating needs.
            from tkdebug.verification.records import Request
            from tkdebug.verification.report import render
            from tkdebug.verification.worker import examine_function

            name = getattr(candidate, "__name__", "kernel")
            request = Request(
                inspect.getsourcefile(candidate) or "",
                name,
                getattr(reference, "__name__", ""),
                seed=seed,
                seconds=seconds,
                cases=cases,
                is_deterministic=deterministic,
                is_batch_invariant=batch_invariant,
            )
            answer = examine_function(candidate, reference, inputs, init, request)
            if answer.verdict != "right":
                raise AssertionError("".join(render(answer, "text")))

        # Not `__wrapped__`: pytest would look for fixtures of the candidate's parameters.
        for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(test, attribute, getattr(candidate, attribute))
        return test

    return decorated
