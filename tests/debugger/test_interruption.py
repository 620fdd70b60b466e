"""The user's code in a debugger: what interrupts it, and how little of what it raises gets out."""

import os
import signal
import sys
import threading
import time

import pytest
from patience import LONGEST_WAIT_S

from tkdebug.debugger.expressions import EvaluationError
from tkdebug.debugger.goals import Ended
from tkdebug.debugger.interruption import InterruptedEvaluation, Interruptible
from tkdebug.errors import Terminated


@pytest.fixture
def expressions():
    before = signal.getsignal(signal.SIGINT)
    yield Interruptible()
    assert signal.getsignal(signal.SIGINT) is before


def endless(begun):
    begun.set()
    return [0 for _ in iter(int, 1) if 0]


def asleep(begun):
    begun.set()
    time.sleep(1000)


def stubborn(begun):
    try:
        endless(begun)
    except BaseException:
        return "went on"


def interrupted(expressions, function, *, in_main):
    """Return the result or error of `function`, which another thread interrupts after its begin."""
    begun, ended, found = threading.Event(), threading.Event(), []

    def call():
        try:
            found.append(expressions.call(lambda: function(begun)))
        except EvaluationError as error:
            found.append(error)
        ended.set()

    def interrupt():
        begun.wait(LONGEST_WAIT_S)
        expressions.interrupt()
        while not ended.wait(0.2):  # it was not asleep yet, and is now
            expressions.interrupt()

    first, second = (interrupt, call) if in_main else (call, interrupt)
    other = threading.Thread(target=first)
    other.start()
    second()
    other.join(LONGEST_WAIT_S)
    return found[0]


@pytest.mark.parametrize(
    ("function", "in_main"), [(endless, True), (asleep, True), (endless, False)]
)
def test_another_thread_interrupts_what_runs(expressions, function, in_main):
    found = interrupted(expressions, function, in_main=in_main)
    assert isinstance(found, InterruptedEvaluation)
    assert str(found) == "interrupted"
    assert not expressions.interrupt()


def test_ctrl_c_reaches_brief_code_by_its_usual_handler(expressions):
    before = signal.signal(signal.SIGINT, lambda *_: expressions.interrupt())

    def press():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1000)

    try:
        with pytest.raises(InterruptedEvaluation):
            expressions.call(press, is_brief=True)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("in_main", [True, False])
def test_code_that_swallows_an_interrupt_ends_by_itself(expressions, in_main):
    assert interrupted(expressions, stubborn, in_main=in_main) == "went on"


@pytest.mark.parametrize("in_main", [True, False])
def test_an_interrupt_hits_nothing_but_what_it_is_for(expressions, in_main):
    calls, is_over, outcome = 3000, threading.Event(), []

    def spam():
        while not is_over.is_set():
            expressions.interrupt()

    def work():
        ended = 0
        for _ in range(calls):
            try:
                expressions.call(lambda: sum(range(50)))
            except InterruptedEvaluation:
                pass
            ended += 1
        outcome.append(ended)
        is_over.set()

    other = threading.Thread(target=spam if in_main else work)
    other.start()
    (work if in_main else spam)()
    other.join(LONGEST_WAIT_S)
    assert outcome == [calls]


def test_traced_code_goes_on_after_an_interrupt(expressions):
    lines = []
    interrupted(expressions, endless, in_main=False)
    interrupted(expressions, endless, in_main=True)
    sys.settrace(lambda frame, event, argument: lines.append(frame.f_lineno))
    try:
        expressions.call(lambda: 0)
    finally:
        sys.settrace(None)
    assert lines


@pytest.mark.parametrize(
    ("error", "said"),
    [(SystemExit(9), "SystemExit: 9: only `quit` ends the script"), (GeneratorExit(), "Gener")],
)
def test_what_would_end_the_process_is_an_error_of_the_expression(expressions, error, said):
    def fail():
        raise error

    with pytest.raises(EvaluationError, match=said):
        expressions.call(fail)


@pytest.mark.parametrize("error", [Terminated(15), Ended(0), ZeroDivisionError()])
def test_what_ends_the_script_passes(expressions, error):
    def fail():
        raise error

    with pytest.raises(type(error)):
        expressions.call(fail)


def test_ctrl_c_is_an_interrupt_within_and_as_before_in_what_is_outside(expressions):
    def press():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1000)

    def within():
        with expressions.outside():
            assert not expressions.interrupt()
            with pytest.raises(KeyboardInterrupt):
                press()
        press()

    with pytest.raises(InterruptedEvaluation):
        expressions.call(within)
