"""Cases that Hypothesis draws: simpler ones than another, the simplest that has a property."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tkdebug.knobs import KNOBS
from tkdebug.process.disk_cache import user_cache
from tkdebug.verification.plan import Accepts, Plan, size_of, with_size
from tkdebug.verification.records import Case

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


def first_of(cases: SearchStrategy[Case], shows: Accepts, most: int, seed: str) -> Case | None:
    """Return the simplest case found for which a predicate holds, None without any.

    Args:
        cases: the strategy that draws cases, the simplest first.
        shows: the predicate; it must not change from true to false for a case.
        most: the cases that are drawn at most until one is found; making it simpler draws more.
        seed: the seed of the draws.
    """
    # Few verifications need it: those with time for random cases, and of kernels that are wrong.
    from hypothesis import Phase, configuration, errors, find, settings

    phases = Phase.generate, Phase.shrink
    limits = settings(max_examples=most, phases=phases, database=None, deadline=None)
    # It keeps constants of modules on disk whatever the settings: there, not beside the kernel.
    configuration.set_hypothesis_home_dir((KNOBS.cache_dir or user_cache()) / "hypothesis")
    try:
        return find(cases, shows, settings=limits, random=random.Random(seed))
    except errors.NoSuchExample:
        return None
    finally:
        configuration.set_hypothesis_home_dir(None)


def simpler(case: Case, plan: Plan) -> SearchStrategy[Case]:
    """Return a strategy of cases whose parts are plain or the given case's; no size is larger."""
    from hypothesis import strategies as st

    tied = {place for group in plan.sizes.apart for place in group.numbers}

    @st.composite
    def cases(draw: Callable[[Any], Any]) -> Case:
        # Every second draw is the case itself, which Hypothesis then makes smaller.
        is_same = draw(st.booleans())

        def part(plain: Sequence[Any], failing: Any) -> Any:
            options = [*itertools.takewhile(lambda one: one != failing, plain), failing]
            last = len(options) - 1
            return options[draw(st.integers(last if is_same else 0, last))]

        made = case.renamed(
            case.name,
            way=part(["checked"], case.way),
            layouts=tuple(part(["contiguous"], one) for one in case.layouts),
            dtypes=part([plan.given.dtypes], case.dtypes),
            weights=part(["given"], case.weights),
            values=part(["integers", "normal"], case.values),
            numbers=tuple(
                number if place in tied else part([plan.given.numbers[place]], number)
                for place, number in enumerate(case.numbers)
            ),
        )
        for group in plan.sizes.apart:
            now = size_of(case, group)
            size = draw(st.integers(now if is_same else min(now, 1), now))
            made = made if size == now else with_size(made, group, size)
        return made

    return cases()
