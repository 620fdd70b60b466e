import pytest
from made_facts import FACTS

from tkdebug.advice.judging import RemarkPlugin
from tkdebug.advice.machines import MACHINES
from tkdebug.advice.records import Remark
from tkdebug.runtime.advising import launches

REMARK = Remark("k", "hash", 0, "k.py", 3, "mine", "a plugin's")


class Plugin:
    def __init__(self):
        self.problems = []

    def fail(self, reason):
        self.problems.append(reason)


def remarks_of(monkeypatch, rule):
    plugin = Plugin()
    found = [(plugin, RemarkPlugin(rule))]
    monkeypatch.setattr(launches, "loaded", lambda group, kind: iter(found))
    return plugin, list(launches.remarks_of_plugins(FACTS, MACHINES["sm_90a"]))


def test_a_rule_sees_the_facts(monkeypatch):
    plugin, remarks = remarks_of(monkeypatch, lambda facts, machine: [REMARK])
    assert remarks == [REMARK]
    assert plugin.problems == []


def test_a_rule_that_raises_is_skipped(monkeypatch):
    plugin, remarks = remarks_of(monkeypatch, lambda facts, machine: 1 / 0)
    assert remarks == []
    assert [type(problem) for problem in plugin.problems] == [ZeroDivisionError]


@pytest.mark.parametrize("given", [["text"], [REMARK, None]])
def test_what_is_no_remark_is_left_out(monkeypatch, given):
    plugin, remarks = remarks_of(monkeypatch, lambda facts, machine: given)
    assert remarks == [one for one in given if one is REMARK]
    assert len(plugin.problems) == 1
