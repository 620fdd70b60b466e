from tkdebug.instrument.device_records import GpuState, LostActivities
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.recording.nvml import Nvml, slowdown_names
from tkdebug.instrument.renderers import text_format
from tkdebug.instrument.session import Session
from tkdebug.records.hook_chain import HOOKS

STATE = GpuState("GPU-1", "NVIDIA H200", True, 1980, 3201, 0, 0, 39, 78000)


def test_state_is_what_nvml_says(fake_nvml):
    fake_nvml.fake_state(1755, 0x4 | 0x1)
    state = Nvml(fake_nvml.path, fake_nvml.path).state(0, is_busy=True)
    assert state == GpuState(
        gpu="GPU-10101010-1010-1010-1010-101010101010",
        name="NVIDIA H200",
        is_busy=True,
        sm_clock_mhz=1755,
        memory_clock_mhz=3201,
        slowdown_reasons=5,
        performance_state=0,
        temperature_c=39,
        power_mw=77991,
    )
    assert slowdown_names(state.slowdown_reasons) == ("power cap",)


def test_gpu_that_nvml_does_not_know_has_no_state(fake_nvml):
    nvml = Nvml(fake_nvml.path, fake_nvml.path)
    assert nvml.state(1, is_busy=True) is None
    assert nvml.state(2, is_busy=True) is None


def warnings_of(tmp_path, *records):
    path = tmp_path / "run.tkd"
    with Recorder(path, output=False):
        for record in records:
            HOOKS.record(record)
    with Session.open(path) as session:
        return list(text_format.gpu_warnings(session))


def changed(state, **changes):
    from dataclasses import replace

    return replace(state, **changes)


def test_clock_that_changed_under_kernels_is_a_warning(tmp_path):
    slow = changed(STATE, sm_clock_mhz=1410, slowdown_reasons=0x4)
    assert warnings_of(tmp_path, STATE, slow) == [
        "NVIDIA H200: its clock was between 1410 and 1980 MHz while kernels ran; times from "
        "different moments do not compare",
        "NVIDIA H200: was slowed down: power cap",
    ]


def test_clock_of_an_idle_gpu_is_none(tmp_path):
    idle = changed(STATE, is_busy=False, sm_clock_mhz=345, slowdown_reasons=1)
    nearly = changed(STATE, sm_clock_mhz=1965)
    assert warnings_of(tmp_path, idle, STATE, nearly, idle) == []


def test_records_that_are_missing_are_a_warning(tmp_path):
    lost = [LostActivities(2000, "no room"), LostActivities(5, "no room"), LostActivities(0, "x")]
    assert warnings_of(tmp_path, *lost) == ["2,005 records of the GPU are missing: no room", "x"]
