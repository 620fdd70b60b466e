"""`tkdebug.record()` in a Python that tkdebug did not start."""

import pytest
import torch

import tkdebug
import tkdebug.language as tl
from tkdebug.errors import SessionError
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.records import Output
from tkdebug.instrument.session import Session


@tkdebug.jit
def double(x, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(x + offs, 2 * tl.load(x + offs))


def launch():
    with tkdebug.mode("interpret"):
        double[(1,)](torch.ones(16), BLOCK=16)


def test_what_is_launched_in_the_block_is_recorded(tmp_path, capsys):
    launch()
    with tkdebug.record(tmp_path / "run.tkd") as recording:
        launch()
        print("inside")
        launch()
    launch()
    assert recording.path == tmp_path / "run.tkd"
    with Session.open(recording.path) as session:
        assert [one.kernel for one in session.launches_in_order()] == ["double", "double"]
        assert session.run().exit_status == 0
        assert "inside" in "".join(one.event.text for one in session.records(Output))


def test_recording_is_stopped_by_a_call_and_has_what_was_flushed(tmp_path):
    recording = tkdebug.record(tmp_path / "run.tkd", output=False)
    launch()
    recording.flush()
    with Session.open(recording.path) as session:
        assert session.launch_count() == 1
    recording.stop()
    launch()
    recording.stop()
    assert recording.error is None
    with Session.open(recording.path) as session:
        assert session.launch_count() == 1


def test_script_that_raises_in_the_block_has_failed(tmp_path):
    with pytest.raises(ZeroDivisionError), tkdebug.record(tmp_path / "run.tkd"):
        _ = 1 // 0
    with Session.open(tmp_path / "run.tkd") as session:
        assert session.run().exit_status == 1


def test_operations_of_torch_are_noted_where_asked_for(tmp_path, monkeypatch):
    noted = []
    monkeypatch.setattr(
        Recorder, "note_operation", lambda self, start, end, code, line: noted.append(code.co_name)
    )
    with tkdebug.record(tmp_path / "run.tkd", stacks=True):
        torch.ones(4).sum()
    count = len(noted)
    torch.ones(4).sum()
    assert len(noted) == count
    assert set(noted) == {"test_operations_of_torch_are_noted_where_asked_for"}


def test_path_that_cannot_be_written_is_one_clear_error(tmp_path):
    with pytest.raises(SessionError, match="is a directory; give a file name"):
        tkdebug.record(tmp_path)
