"""How a list of statements ends, and what is still to run after it.

A `return` under a run-time condition is compiled as structured control flow: the statements that
follow the `if` move into the branch that did not return. `Rest` is that "what follows".
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any


class Flow(Enum):
    """Where control goes at the end of some statements."""

    FALLS = auto()
    RETURNS = auto()
    # Some paths returned and some fell through: the ops emitted so far are of no use, the caller
    # compiles the statements again with what follows them.
    MIXED = auto()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a statement list.

    Attributes:
        value: what was returned, None for nothing.
        node: the `return` statement, or None when the function's end was reached.
    """

    flow: Flow
    value: Any = None
    node: ast.Return | None = None


FALLS = Outcome(Flow.FALLS)
MIXED = Outcome(Flow.MIXED)


@dataclass(frozen=True, slots=True)
class Rest:
    """Statements from `index` on, then `after`; `after` None means that control falls through."""

    statements: Sequence[ast.stmt]
    index: int
    after: Rest | None


# What follows a function's body: its end, which returns nothing.
END_OF_FUNCTION = Rest((), 0, None)
