"""PC sampling: what CUPTI gives is read right, recorded, and reported by line."""

import ctypes
import json
import tempfile
from types import SimpleNamespace

import pytest

from tkdebug.errors import Frame
from tkdebug.instrument.analyses.stalls import recorded_stalls
from tkdebug.instrument.cupti.library import CuptiError
from tkdebug.instrument.cupti.pc_sampling import PcSampling, crc_of_cubin
from tkdebug.instrument.device_records import (
    LostActivities,
    SampledImage,
    SamplingTotal,
    StallSamples,
)
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.recording import stall_recording
from tkdebug.instrument.recording.stall_recording import StallRecording
from tkdebug.instrument.report import write_report
from tkdebug.instrument.session import Session
from tkdebug.linemap.line_table import Instruction, LineTable
from tkdebug.linemap.line_table_data import to_data
from tkdebug.records.events import KernelCompiled

UNKNOWN = 999
NOT_ALLOWED = 35  # CUPTI_ERROR_INSUFFICIENT_PRIVILEGES


@pytest.fixture
def library(fake):
    fake.library.fake_sampling(0)
    return fake.library


class OneContext:
    def __init__(self, name=""):
        self.released = 0
        self.name = name

    def active(self):
        return {0: 0x1000}

    def gpu(self, device):
        return self.name

    def release(self):
        self.released += 1


def compiled(kernel_hash="h1", image=b"\x20\x2d"):
    return KernelCompiled(
        kernel_hash, "kernel", "k.py", 1, "", "", {}, {}, {}, 1, image=lambda: image
    )


def test_samples_by_instruction_and_reason(library):
    sampling = PcSampling(library, 0x1000, period=12)
    sampling.start()
    assert library.fake_period() == 12
    taken = sampling.take()
    assert taken.counts == {
        (77, "kernel", 0, "long_scoreboard"): 1,
        (77, "kernel", 0, "wait"): 10,
        (77, "kernel", 16, "long_scoreboard"): 2,
        (77, "kernel", 16, "wait"): 20,
    }
    assert (taken.total, taken.dropped) == (40, 3)
    assert sampling.take().counts == taken.counts  # nothing of before is in it
    rest = sampling.stop()
    assert sum(rest.counts.values()) == 33
    assert {key[0] for key in rest.counts} == {78}
    assert library.fake_sampled() == 0


def test_what_cupti_refuses_is_an_error(library):
    library.fake_sampling(NOT_ALLOWED)
    with pytest.raises(CuptiError, match=r"INSUFFICIENT_PRIVILEGES.*NVreg_RestrictProfiling"):
        PcSampling(library, 0x1000).start()
    assert library.fake_sampled() == 0


def test_crc(library):
    assert crc_of_cubin(library, b"\x01\x02\x03") == 6


def recorded(fake, monkeypatch):
    monkeypatch.setattr(stall_recording, "TAKE_S", 0.0)
    reported, contexts = [], OneContext()
    recording = StallRecording(fake.path, 130001, reported.append, contexts)
    recording.compiled(compiled())
    recording.round()
    recording.round()
    recording.stop()
    assert contexts.released == 1
    return reported


def test_a_recording_takes_in_rounds_and_at_its_end(fake, library, monkeypatch):
    reported = recorded(fake, monkeypatch)
    assert reported[0] == SampledImage("h1", 77)
    assert reported.count(SamplingTotal(40, 3)) == 3
    samples = [one for one in reported if isinstance(one, StallSamples)]
    assert [one.crc for one in samples] == [77, 77, 78]
    assert samples[0].reasons == ("long_scoreboard", "wait")
    assert samples[0].counts == ((0, 0, 1), (0, 1, 10), (16, 0, 2), (16, 1, 20))
    assert library.fake_sampled() == 0


def test_where_sampling_is_forbidden_that_is_one_line(fake, library, capsys):
    library.fake_sampling(NOT_ALLOWED)
    reported = []
    recording = StallRecording(fake.path, 130001, reported.append, OneContext())
    for _ in range(3):
        recording.round()
    recording.stop()
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("tkdebug: --stalls: cuptiPCSamplingEnable: CUPTI_ERROR_INSUFFICIENT")
    assert line.endswith("; `tkdebug lines` shows the instructions of each line without them")
    assert [type(one) for one in reported] == [LostActivities]


def test_where_samples_cannot_be_taken_sampling_is_left_alone(fake, library, monkeypatch, capsys):
    monkeypatch.setattr(stall_recording, "TAKE_S", 0.0)
    reported = []
    recording = StallRecording(fake.path, 130001, reported.append, OneContext())
    recording.round()
    library.fake_sampling(UNKNOWN)
    recording.round()
    recording.round()
    recording.stop()
    [line] = capsys.readouterr().err.splitlines()
    assert "cuptiPCSamplingGetData: CUPTI_ERROR_UNKNOWN (999): does another process sample" in line
    assert library.fake_sampled() == 0
    assert isinstance(reported[-1], LostActivities)
    assert recording.is_broken


def test_a_gpu_is_sampled_by_one_process_at_a_time(fake, library, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    first, second, third = (
        StallRecording(fake.path, 130001, lambda event: None, OneContext("GPU-1")) for _ in range(3)
    )
    first.round()
    second.round()
    second.stop()
    [line] = capsys.readouterr().err.splitlines()
    assert "--stalls: another run of tkdebug samples this GPU already; `tkdebug lines`" in line
    assert library.fake_sampled() == 1
    first.stop()
    third.round()
    assert library.fake_sampled() == 1
    third.stop()
    assert not capsys.readouterr().err


def test_an_older_cupti_is_refused_by_its_version(fake, capsys):
    StallRecording(fake.path, 18, lambda event: None, OneContext()).round()
    assert "no PC sampling as it is since CUDA 12.4 (got version 18)" in capsys.readouterr().err


@pytest.fixture
def session(fake, library, monkeypatch, tmp_path):
    """A session with the samples of one kernel of ours and of one that is not."""
    source = tmp_path / "k.py"
    source.write_text("first\nsecond line\n")
    frames = (Frame(str(source), 2, "kernel"),)
    table = LineTable(
        kernel="kernel",
        target="sm_90a",
        ops={},
        instructions=(Instruction(0, "LDG", 3, None, frames), Instruction(16, "MOV", 4, None, ())),
    )
    kernel = compiled()
    kernel = KernelCompiled(
        kernel.hash, "kernel", str(source), 1, "", "", {}, {}, {}, 1,
        line_table=lambda: to_data(table), image=kernel.image,
    )  # fmt: skip
    path = tmp_path / "run.tkd"
    with Recorder(path, script="s", output=False) as recorder:
        recorder._on_compiled(kernel)
        for one in recorded(fake, monkeypatch):
            recorder._on_record(one)
    with Session.open(path) as opened:
        yield opened


def test_samples_are_reported_by_line(session):
    stalls = recorded_stalls(session)
    assert (stalls.samples, stalls.dropped) == (120, 9)
    ours, others = stalls.kernels
    assert (ours.kernel, ours.kernel_hash, ours.samples) == ("kernel", "h1", 66)
    assert [(one.frame and one.frame.line, one.samples) for one in ours.lines] == [
        (None, 44),
        (2, 22),
    ]
    assert ours.lines[1].reasons == {"long_scoreboard": 2, "wait": 20}
    assert [one.instruction.text for one in ours.instructions] == ["LDG", "MOV"]
    assert (others.kernel_hash, others.samples, others.lines) == (None, 33, ())


def test_reports_have_them(session, tmp_path):
    text = write(session, tmp_path, "text")
    assert "where warps wait, by 99 samples of program counters" in text
    assert "the GPU had no room for 9 further samples" in text
    assert " 33.3 %  k.py:2  second line\n" in text
    assert "wait 91 % (the instruction before, of fixed latency), long scoreboard 9 %" in text
    stalls = json.loads(write(session, tmp_path, "json"))["stalls"]
    assert [one["samples"] for one in stalls] == [66, 33]
    assert stalls[0]["lines"][1]["line"] == 2
    assert stalls[0]["instructions"][0] == {
        "address": 0, "sass": "LDG", "op": None, "samples": 22,
        "reasons": {"long_scoreboard": 2, "wait": 20},
    }  # fmt: skip


def write(session, folder, name):
    path = folder / f"report.{name}"
    write_report(session, path, name, kept=True)
    return path.read_text()


def test_structures_have_the_sizes_of_the_header():
    """Sizes of cupti_pcsampling.h (CUDA 13.0), by its macros and packing."""
    from tkdebug.instrument.cupti import pc_sampling

    sizes = SimpleNamespace(**{
        name: ctypes.sizeof(getattr(pc_sampling, name))
        for name in ("_Data", "_Setting", "_Settings", "_Take", "_Reasons", "_CrcOfCubin")
    })  # fmt: skip
    assert (sizes._Data, sizes._Setting, sizes._Settings) == (80, 32, 40)
    assert (sizes._Take, sizes._Reasons, sizes._CrcOfCubin) == (32, 48, 32)
    assert pc_sampling._record_type().itemsize == 64
