"""Fronts that tests drive a debugger with."""

from contextlib import contextmanager

from tkdebug.debugger.engine import Debugger
from tkdebug.debugger.goals import Continue


class Scripted:
    """Goes through a list: functions are called with the debugger, what they give is a Resume."""

    def __init__(self, steps):
        self.steps = list(steps)
        self.stops = []
        self.logged = []

    def log(self, text):
        self.logged.append(text)

    def stopped(self, debugger, stop):
        self.stops.append(stop)
        while self.steps:
            step = self.steps.pop(0)
            if not callable(step):
                return step
            step = step(debugger)
            if step is not None:
                return step
        return Continue()


class Repeated:
    """Calls a function at each stop, and goes on by the same Resume."""

    def __init__(self, look, resume):
        self._look, self._resume = look, resume

    def log(self, text):
        raise AssertionError(text)

    def stopped(self, debugger, stop):
        self._look(debugger, stop)
        return self._resume


@contextmanager
def debugging(front, **options):
    """A debugger of this process's launches."""
    debugger = Debugger(front, **options)
    debugger.attach()
    try:
        yield debugger
    finally:
        debugger.detach()
