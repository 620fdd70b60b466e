from pathlib import Path

from launching import fault, launch

from tkdebug.errors import Frame
from tkdebug.fault_printing.printer import MAX_PRINTED
from tkdebug.instrument import add_hook
from tkdebug.records.events import AutotuneChoice, LaunchProgress
from tkdebug.records.hook_chain import HOOKS, Hook, HookChain


def test_hooks_enter_in_order_and_exit_in_reverse():
    calls = []
    with (
        add_hook(lambda k, r: calls.append("enter a"), lambda k, r: calls.append("exit a")),
        add_hook(lambda k, r: calls.append("enter b"), lambda k, r: calls.append("exit b")),
    ):
        launch()
    assert calls == ["enter a", "enter b", "exit b", "exit a"]


def test_hook_exit_sees_the_duration_and_enter_does_not():
    seen = []
    with add_hook(lambda k, r: seen.append(r.duration_ns), lambda k, r: seen.append(r.duration_ns)):
        launch(duration_ns=77)
    assert seen == [None, 77]


def test_hook_removed_is_not_called_and_removing_twice_is_harmless():
    calls = []
    handle = add_hook(enter=lambda k, r: calls.append(r))
    handle.remove()
    handle.remove()
    launch()
    assert calls == []
    assert HOOKS.launch is None


def test_hook_removed_inside_a_launch_still_exits_that_launch():
    calls = []
    handle = add_hook(lambda k, r: handle.remove(), lambda k, r: calls.append("exit"))
    launch()
    launch()
    assert calls == ["exit"]


def test_hook_that_raises_is_reported_once_and_the_others_run(capfd):
    calls = []

    def broken(kernel, record):
        raise RuntimeError("from the hook")

    with add_hook(enter=broken), add_hook(enter=lambda k, r: calls.append(r)):
        launch()
        launch()
    assert len(calls) == 2
    shown = capfd.readouterr().err
    assert shown.count("raised (shown once)") == 1
    assert "RuntimeError: from the hook" in shown
    assert "tkdebug: hook" in shown
    assert "broken raised" in shown


def test_hook_arguments_are_not_worked_out_unless_asked_for():
    asked = []
    with add_hook(enter=lambda k, r: None):
        launch(make_arguments=lambda: asked.append(1) or ())
    with add_hook(enter=lambda k, r: r.arguments):
        launch(make_arguments=lambda: asked.append(2) or ())
    assert asked == [2]


def test_hooks_for_other_events_get_their_records():
    events = []
    with add_hook(
        compiled=events.append,
        autotuned=events.append,
        fault=events.append,
        progress=events.append,
    ):
        sent = [
            AutotuneChoice("k", "(1,)", "BLOCK: 4", {}),
            fault(frames=(Frame("/k.py", 1, "k"),)),
            LaunchProgress(1, "k", 5, 10, 99),
        ]
        HOOKS.autotuned(sent[0])
        HOOKS.fault(sent[1])
        HOOKS.progress(sent[2])
    assert events == sent


def test_hook_without_launch_callbacks_costs_launches_nothing():
    with add_hook(fault=lambda f: None):
        assert HOOKS.launch is None


def test_fault_that_no_hook_hears_is_reported_once_on_stderr(capsys):
    chain = HookChain()
    for launch_id in (1, 2):
        chain.fault(fault(__file__, 1, launch_id=launch_id))
    printed = capsys.readouterr().err
    assert printed.count("oob-load in add_kernel") == 1
    assert "test_hooks.py:1: " in printed
    assert f"    {Path(__file__).read_text().splitlines()[0]}\n" in printed


def test_fault_that_a_hook_hears_is_not_reported(capsys):
    chain, heard = HookChain(), []
    chain.add(Hook(fault=heard.append))
    chain.fault(fault())
    assert len(heard) == 1
    assert capsys.readouterr().err == ""


def test_compile_errors_are_reported_by_their_exception_alone(capsys):
    HookChain().fault(fault(kind="compile-error"))
    assert capsys.readouterr().err == ""


def test_unheard_faults_have_a_limit(capsys):
    chain = HookChain()
    for number in range(1, 200):
        chain.fault(fault(line=number))
    printed = capsys.readouterr().err
    assert printed.count("oob-load in add_kernel") == MAX_PRINTED
    assert printed.endswith("tkdebug: further faults are not shown here; `tkdebug run` has all\n")
