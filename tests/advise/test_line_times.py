"""A launch's predicted time by line."""

from dataclasses import replace

import pytest
from made_facts import FACTS, LOAD, STORE, streaming

from tkdebug.advice.facts import LineCode
from tkdebug.advice.judging import judge
from tkdebug.advice.machines import MACHINES
from tkdebug.advice.model import line_shares, work_of
from tkdebug.advice.records import LineTime

H100 = MACHINES["sm_90a"]


def shares_of(facts):
    return line_shares(facts, work_of(facts, H100), H100)


def test_the_line_that_moves_the_bytes_has_the_time_of_a_launch_bound_by_them():
    facts = streaming(4 * H100.sms)
    cheap = LineCode(STORE, {"issue": 100.0, "fp32": 100.0})
    shares = shares_of(replace(facts, code=(*facts.code, cheap)))
    assert sum(shares.values()) == pytest.approx(1)
    assert shares[LOAD] > 0.99


def test_instructions_share_the_time_of_a_launch_without_memory():
    busy = LineCode(LOAD, {"issue": 3e9, "fp32": 3e9}), LineCode(STORE, {"issue": 1e9, "fp32": 1e9})
    shares = shares_of(replace(FACTS, grid=(1320, 1, 1), code=busy))
    assert shares == pytest.approx({LOAD: 0.75, STORE: 0.25})


def test_a_launch_of_which_no_line_is_known_has_no_times_of_lines():
    assert shares_of(FACTS) == {}


def test_a_verdict_has_the_instructions_that_each_line_executes():
    facts = streaming(22)
    times = [one for one in judge(facts, H100, 5).lines if isinstance(one, LineTime)]
    (time,) = times
    assert (time.file, time.line, time.launch_id) == (LOAD.file, LOAD.line, 5)
    assert time.instructions == facts.code[0].by_pipe["issue"]
