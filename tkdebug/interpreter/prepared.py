"""What the interpreter works out once per module, for all of its launches."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tkdebug.compiler.dialects import tt
from tkdebug.compiler.ir import Module
from tkdebug.interpreter.fusion import Fusion
from tkdebug.interpreter.memory_usage import live_bytes_per_program, written_arguments
from tkdebug.interpreter.observers import Observer
from tkdebug.interpreter.plan import Plan
from tkdebug.interpreter.spin_loops import spin_loops


class Prepared:
    """What is worked out once per module: plans of its blocks, its memory usage, its writes."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self.fusion = Fusion.of(module)
        self.bytes_per_program = live_bytes_per_program(module)
        self.written = written_arguments(module)
        self.spin_loops = spin_loops(module)
        self._plans: dict[tuple[Hashable, ...], Plan] = {}
        self.names = tt.Func(module.function).arg_names
        self.announced = False

    @classmethod
    def of(cls, module: Module) -> Prepared:
        """That of a module, made when it is first asked for."""
        prepared = module.derived.get(cls)
        if prepared is None:
            prepared = module.derived[cls] = cls(module)
        assert isinstance(prepared, cls)
        return prepared

    def plan(self, observers: Sequence[Observer]) -> Plan:
        """The plan for such observers; shared where all of them have keys."""
        keys = tuple(observer.key for observer in observers)
        plan = self._plans.get(keys)
        if plan is None:
            plan = Plan(self._module, observers, bool(self.spin_loops))
            if None not in keys:
                self._plans[keys] = plan
        return plan
