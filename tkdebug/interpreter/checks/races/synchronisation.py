"""Ops of a kernel that put its programs in an order, read off the IR.

An order takes two: one program that tells and another one that looks. In a kernel where no program
looks at what others tell, no op synchronises, and all its programs run at once.
"""

from __future__ import annotations

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Module, Operation
from tkdebug.compiler.ir import types as ir
from tkdebug.interpreter.checks.races.happens_before import Meaning
from tkdebug.interpreter.module_facts import fact_of
from tkdebug.interpreter.scheduler import is_uncached_load, polled_loads, spin_loops

_RELEASES = ("release", "acq_rel")
_ACQUIRES = ("acquire", "acq_rel")
_FLAG_LOAD = Meaning(observes=True, publishes=False, acquires=True, releases=False, fences=False)
_FLAG_STORE = Meaning(observes=False, publishes=True, acquires=False, releases=True, fences=False)


class Synchronisation:
    """Meanings of a module's ops for the order of its programs.

    Attributes:
        meanings: of the ops that synchronise; empty where programs never look at each other.
        fences: ops that order what relaxed atomics before and after them do.
    """

    def __init__(self, module: Module) -> None:
        self.meanings: dict[Operation, Meaning] = {}
        self.fences: frozenset[Operation] = frozenset()
        flags = _flag_loads(module)
        if not flags and not any(_is_looked_at(op) for op in module.walk()):
            return
        for op in module.walk():
            if tt.Atomic.matches(op):
                self.meanings[op] = _meaning_of_atomic(op)
            elif op in flags:
                self.meanings[op] = _FLAG_LOAD
            elif tt.Store.matches(op) and _is_scalar(op):
                self.meanings[op] = _FLAG_STORE
        self.fences = frozenset(filter(_is_fence, module.walk()))

    @classmethod
    def of(cls, module: Module) -> Synchronisation:
        """Return the meanings of a module, found when they are first asked for."""
        return fact_of(module, cls, cls)


def is_silent_flag(op: Operation) -> bool:
    """Whether a flag's load is no plain access: PTX takes volatile loads for relaxed ones."""
    return is_uncached_load(op)


def _is_looked_at(op: Operation) -> bool:
    return tt.Atomic.matches(op) and bool(tt.Atomic(op).result.uses)


def _meaning_of_atomic(op: Operation) -> Meaning:
    atomic = tt.Atomic(op)
    # Programs are CTAs of their own.
    reaches = atomic.scope != "cta"
    observes = reaches and bool(atomic.result.uses)
    return Meaning(
        observes=observes,
        publishes=reaches and not tt.AtomicLoad.matches(op),
        acquires=reaches and atomic.sem in _ACQUIRES,
        releases=reaches and atomic.sem in _RELEASES,
        fences=reaches and atomic.sem in _RELEASES,
    )


def _flag_loads(module: Module) -> set[Operation]:
    """Loads by which programs look at each other's flags."""
    loops = spin_loops(module)
    waiting = {op for loop in loops for op in loop.walk() if is_uncached_load(op)}
    polled = {load for loop in loops for load in polled_loads(loop, module)}
    single = {op for op in module.walk() if is_uncached_load(op) and _is_scalar(op)}
    return waiting | polled | single


def _is_scalar(op: Operation) -> bool:
    access = tt.Load.cast(op) or tt.Store(op)
    return not ir.shape_of(access.pointer.type)


def _is_fence(op: Operation) -> bool:
    if not tt.ElementwiseInlineAsm.matches(op):
        return False
    text = tt.ElementwiseInlineAsm(op).asm
    return "fence." in text or "membar." in text
