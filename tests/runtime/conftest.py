from types import SimpleNamespace

import pytest

from tkdebug.knobs import KNOB_TABLE, KNOBS


@pytest.fixture(autouse=True)
def clean_knobs(monkeypatch):
    """Knobs as a process without TKDEBUG_* and TRITON_* variables has them."""
    for knob in KNOB_TABLE:
        for variable in knob.sources:
            monkeypatch.delenv(variable, raising=False)
    KNOBS.refresh()
    yield
    KNOBS.refresh()


@pytest.fixture
def launches(monkeypatch):
    """Records launches (kernel, grid, run-time values) in place of running them."""
    from tkdebug.runtime.arguments.specialize import runtime_values
    from tkdebug.runtime.jit import function as jit
    from tkdebug.runtime.launch import interpreted_kernel

    seen = []

    def compile_kernel(src):
        return interpreted_kernel.InterpretedKernel(src, SimpleNamespace())

    def execute(kernel, grid, values, record, is_reported):
        flat = runtime_values(kernel.src.specs, values)
        seen.append(SimpleNamespace(kernel=kernel, grid=grid, values=flat, record=record))

    monkeypatch.setattr(jit, "compile_kernel", compile_kernel)
    monkeypatch.setattr(interpreted_kernel.InterpretedKernel, "_execute", execute)
    return seen
