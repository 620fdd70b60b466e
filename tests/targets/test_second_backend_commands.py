"""Commands know backends and platforms by their protocols: doctor, lines, crash and its watch."""

from __future__ import annotations

import os

import pytest
from schedule_backend import PrinterPlatform, ScheduleBackend

from tkdebug.cli import main
from tkdebug.compat.gpu_failures.crashes import ArmedCoreDumps
from tkdebug.compiler.targets import register_backend
from tkdebug.compiler.targets.registered_backends import forget_backend
from tkdebug.records.hook_chain import HOOKS, Hook
from tkdebug.runtime.device.platform import Platform, platform


@pytest.fixture
def printer():
    register_backend(ScheduleBackend())
    device: Platform = PrinterPlatform()
    try:
        with platform(device):
            yield device
    finally:
        forget_backend("schedule")


@pytest.fixture
def jam(tmp_path):
    path = tmp_path / "one.jam"
    path.write_text("scale kern.py 12")
    return path


def answer(capsys, *arguments):
    status = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert err == ""
    return status, out


def test_doctor_asks_backends_and_the_platform_in_force(printer, capsys):
    _, out = answer(capsys, "doctor")
    assert ["printer", "ok", "has", "paper"] in [line.split() for line in out.splitlines()]
    assert "nvdisasm" in out
    assert "CUDA device" not in out


def test_lines_of_another_backends_image(printer, capsys, tmp_path):
    image = tmp_path / "one.schedule"
    image.write_text("scale kern.py 12 PRINT a\nscale kern.py 12 FEED\nother kern.py 3 FEED\n")
    status, out = answer(capsys, "lines", "--kernel", "scale", image)
    assert status == 0
    assert "scale for printer1" in out
    assert "2  100.0 %" in out
    assert "other" not in out


def test_damaged_image_of_another_backend_is_one_line(printer, capsys, tmp_path):
    image = tmp_path / "bad.schedule"
    image.write_text("scale")
    assert main(["lines", str(image)]) == 2
    assert capsys.readouterr().err == f"tkdebug: {image}: not a schedule\n"


def test_crash_is_read_by_the_platform_in_force(printer, capsys, jam):
    status, out = answer(capsys, "crash", jam)
    assert status == 0
    assert "a printer (printer1)" in out
    assert "kern.py:12: trap in scale: the paper is jammed" in out


def test_crash_where_devices_write_nothing_is_said_so(printer, capsys, jam):
    printer.crash_dumps = None
    assert main(["crash", str(jam)]) == 2
    assert capsys.readouterr().err == ("tkdebug: crash: this kind of device writes no core dumps\n")


def test_crashes_of_the_platform_in_force_are_watched(printer):
    armed, faults = ArmedCoreDumps(), []
    hook = Hook(fault=faults.append)
    HOOKS.add(hook)
    try:
        armed.arm(coredump=True)
        assert os.environ["PRINTER_DUMPS"] == "1"
        with open(armed.watch.pattern.replace("%p", str(os.getpid())), "w") as file:
            file.write("scale kern.py 12")
        armed.conclude()
    finally:
        armed.disarm()
        HOOKS.remove(hook)
    assert [(fault.kind, fault.line) for fault in faults] == [("trap", 12)]
    assert "PRINTER_DUMPS" not in os.environ
