"""Reports arguments that are named as inputs, and only stored to, while an output is not.

A name alone proves nothing: kernels fill, initialise and update in place. So two have to agree: an
argument named as an input is stored to and never read, and one named as an output is a tensor that
nothing stores to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from tkdebug.compiler.analysis.global_memory import pointer_origin
from tkdebug.compiler.dialects import tt
from tkdebug.compiler.dialects.interfaces import Effects, PointerAccess
from tkdebug.compiler.dialects.table import OPS
from tkdebug.compiler.faults.messages import FaultText
from tkdebug.compiler.ir import Module, Operation, PointerType, Value
from tkdebug.compiler.ir.core import fact_of
from tkdebug.interpreter.evaluator import Evaluator
from tkdebug.interpreter.fault_log import FaultLog
from tkdebug.interpreter.observers import Moments, Observer
from tkdebug.interpreter.tiles.values import TileValue

# All words of a name have to be of these, but for those that say that it is a pointer:
# `gating_output` is the output of another kernel, `down_inp` the input of the next one, and
# `topk_weights` may be either.
_INPUTS = frozenset(
    "in inp input inputs src source x q k v query key value w weight weights bias residual mask "
    "lhs rhs logits labels target targets gamma indices".split()
)
_OUTPUTS = frozenset("out output outputs dst dest destination result results".split())
_NO_MEANING = frozenset("ptr ptrs pointer p tensor t".split())
_HINT = "are the arguments in the order of the kernel's, and is this the pointer that is meant?"


def role_of(name: str) -> str:
    """Return "input", "output", or "" for an argument's name."""
    words = re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower().strip("_").split("_")
    words = [stem for word in words if (stem := word.rstrip("0123456789"))]
    words = [word for word in words if word not in _NO_MEANING]
    for role, names in (("input", _INPUTS), ("output", _OUTPUTS)):
        if words and names.issuperset(words):
            return role
    return ""


@dataclass(slots=True)
class _Uses:
    """The accesses of an argument."""

    stores: list[Operation] = field(default_factory=list)
    is_read: bool = False


class StoredInputs:
    """The first store to each input that is only stored to, with the text of its fault."""

    def __init__(self, module: Module) -> None:
        self.stores: dict[Operation, FaultText] = {}
        function = tt.Func(module.function)
        pointers = {
            value: name
            for value, name in zip(function.body.arguments, function.arg_names, strict=True)
            if isinstance(value.type, PointerType)
        }
        uses = _uses(module, pointers)
        if uses is None:
            return
        outputs = [name for value, name in pointers.items() if _is_left_out(name, uses[value])]
        for value, name in pointers.items():
            found = uses[value]
            if role_of(name) == "input" and found.stores and not found.is_read and outputs:
                self.stores[found.stores[0]] = _text(name, outputs[0])

    @classmethod
    def of(cls, module: Module) -> StoredInputs:
        """Return the facts of a module, found at the first call."""
        return fact_of(module, cls, cls)


def _is_left_out(name: str, uses: _Uses) -> bool:
    return role_of(name) == "output" and not uses.stores


def _text(stored: str, output: str) -> FaultText:
    return FaultText(
        "stored-input",
        f"`{stored}`, by its name an input, is only stored to, and nothing is stored to `{output}`",
        "warning",
        stored,
        hint=_HINT,
    )


def _uses(module: Module, pointers: dict[Value, str]) -> dict[Value, _Uses] | None:
    """Return the uses of each argument; None if some access may be to any of them."""
    found = {value: _Uses() for value in pointers}
    for op in module.walk():
        effects = OPS[op.name].effects
        if not (Effects.READ in effects or Effects.WRITE in effects):
            continue
        origin = pointer_origin(PointerAccess(op).pointer) if PointerAccess.matches(op) else None
        if not isinstance(origin, Value) or origin not in found:
            return None
        if Effects.READ in effects:
            found[origin].is_read = True
        if Effects.WRITE in effects:
            found[origin].stores.append(op)
    return found


class StoredInputCheck(Observer):
    """`--check stored-input`."""

    is_passive = True

    def __init__(self, module: Module, faults: FaultLog) -> None:
        self._stores = StoredInputs.of(module).stores
        self._faults = faults

    def moments(self, op: Operation) -> Moments:
        """Ask to be called before stores to inputs."""
        return Moments.BEFORE if op in self._stores else Moments.NEVER

    def before(self, run: Evaluator, op: Operation, operands: Sequence[TileValue]) -> None:
        """Report a store to an input."""
        self._faults.record(op, self._stores[op])
