"""Commands of fronts by which a stopped launch goes on, and the ends of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from tkdebug.compiler.frontend.variables import Activation, Mark, MarkKind
from tkdebug.debugger.elements import Element
from tkdebug.debugger.stops import Moment


class StepKind(Enum):
    """Lengths of a step."""

    # To the next line, in functions that are called, too.
    INTO = "into"
    # To the next line of this function, or of its caller.
    OVER = "over"
    # To where this function returns.
    OUT = "out"
    # To the next op.
    OP = "op"
    # To a later line of this function, past the iterations of a loop.
    UNTIL = "until"


class Ended(SystemExit):
    """Ends the script: the debugger was left."""


class RunAgain(Ended):
    """Ends the script, which is to begin again."""


@dataclass(frozen=True, slots=True)
class Continue:
    """Run to the next breakpoint; backwards to the one before."""

    backwards: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """Run until the selected programs are a step further, or one back.

    Attributes:
        line: the first line of UNTIL that counts; 0 for any after this one.
        count: the number of steps.
    """

    kind: StepKind
    backwards: bool = False
    line: int = 0
    count: int = 1


@dataclass(frozen=True, slots=True)
class RunToLine:
    """Run until the selected programs are at a line, once.

    Attributes:
        file: the path in the kernel's locations.
        backwards: the last time before.
    """

    file: str
    line: int
    backwards: bool = False


@dataclass(frozen=True, slots=True)
class LastWrite:
    """Go back to just before the last write of an element, such as `out[3, 17]`."""

    element: str | Element


@dataclass(frozen=True, slots=True)
class GoTo:
    """Go to a moment of this launch, `Stop.moment` of an earlier stop."""

    moment: Moment


@dataclass(frozen=True, slots=True)
class Restart:
    """Go to the beginning of this launch."""


@dataclass(frozen=True, slots=True)
class ChangeStage:
    """Begin this launch again, in the IR of `Debugger.stage`."""


@dataclass(frozen=True, slots=True)
class Quit:
    """End the script.

    Attributes:
        runs_again: whether it is to begin again, with the present breakpoints.
    """

    runs_again: bool = False


@dataclass(frozen=True, slots=True)
class Detach:
    """Stop no more: this launch and all others run as without a debugger."""


Resume = Continue | Step | RunToLine | LastWrite | GoTo | Restart | ChangeStage | Quit | Detach


@dataclass(slots=True)
class Goal:
    """The end of a step that has begun.

    Attributes:
        step: the requested step; None for a line to run to.
        activations: the functions whose lines count; None for all.
        returning: the function that is to return, for OUT.
        line: the line of the stop at which it began.
        target: file and line to run to.
    """

    step: Step | None = None
    activations: frozenset[Activation] | None = None
    returning: Activation | None = None
    line: int = 0
    target: tuple[str, int] | None = None
    marks: Sequence[Mark] = field(default=())

    @classmethod
    def of(cls, step: Step, mark: Mark | None, has_returns: bool = True) -> Goal:
        """The goal of a step that begins at `mark`, None at a launch's beginning or end.

        Passes leave no returns of functions (`has_returns`): the next line of a caller ends one.
        """
        if mark is None or step.kind in (StepKind.INTO, StepKind.OP):
            return cls(step)
        chain = mark.activation.chain
        if step.kind is StepKind.OUT:
            if mark.kind is MarkKind.RETURN or step.backwards or not has_returns:
                return cls(step, frozenset(chain[1:]))
            return cls(step, frozenset(chain), returning=mark.activation)
        return cls(step, frozenset(chain), line=mark.location.line, returning=mark.activation)

    @property
    def wants_ops(self) -> bool:
        """Whether it may end at an op without a mark."""
        return self.step is not None and self.step.kind is StepKind.OP

    def ends_at(self, mark: Mark | None) -> bool:
        """Whether it ends at `mark`; None for an op."""
        if self.target is not None:
            return (
                mark is not None
                and mark.kind is MarkKind.LINE
                and (mark.location.file, mark.location.line) == self.target
            )
        step = self.step
        if step is None or mark is None:
            return self.wants_ops and mark is None
        if step.kind is StepKind.OP:
            return False
        if mark.kind not in (MarkKind.LINE, MarkKind.RETURN):
            return False
        if self.activations is not None and mark.activation not in self.activations:
            return False
        match step.kind:
            case StepKind.OUT:
                if self.returning is None:
                    return True
                return mark.kind is MarkKind.RETURN and mark.activation is self.returning
            case StepKind.UNTIL:
                if mark.activation is not self.returning or mark.kind is MarkKind.RETURN:
                    return True
                return mark.location.line >= (step.line or self.line + 1)
            case _:
                return True
