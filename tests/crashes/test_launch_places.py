"""The line of the script that a launch was made from, below libraries and compiled graphs."""

import sys
from functools import partial
from types import ModuleType

import pytest

from tkdebug.runtime.launch.launches_in_flight import InFlight

# As Inductor generates them: `call` runs a graph from its first launch to its last.
GRAPH = """
def call(launch, fail=False):
    found = [launch()]
    if fail: 1 / 0
    found.append(launch())
    found.append(launch())
    return found
"""
LIBRARY = """
def launcher(place_from, frame):
    return lambda: place_from(frame(0))
"""


def code_of(name, text):
    module = ModuleType(name)
    exec(compile(text, f"<{name}>", "exec"), vars(module))
    return module


def line_of(place):
    code, at = place
    return next(line for start, end, line in code.co_lines() if start <= at < end)


@pytest.fixture
def graph():
    """A compiled graph; gives the lines that its launches were made from."""
    call = code_of("torch._inductor.runtime.compile_tasks.cabc", GRAPH).call
    launcher = code_of("torch._inductor.runtime.triton_heuristics", LIBRARY).launcher
    launch = launcher(InFlight().place_from, sys._getframe)
    return partial(call, launch)


def here():
    return sys._getframe(1).f_lineno


def lines(places):
    return [line_of(place) for place in places]


def test_launches_of_one_graph_have_the_line_that_called_it(graph):
    found, line = graph(), here()
    assert lines(found) == [line] * 3


def test_graph_called_from_other_lines_has_those(graph):
    first, one = graph(), here()
    second, two = graph(), here()
    assert lines(first) == [one] * 3
    assert lines(second) == [two] * 3


def test_graph_called_again_after_an_error_has_its_own_line(graph):
    with pytest.raises(ZeroDivisionError):
        graph(fail=True)
    found, line = graph(), here()
    assert lines(found) == [line] * 3
