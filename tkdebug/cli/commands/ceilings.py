"""`tkdebug ceilings`: the limits of the GPU here, measured, for the predictions of advise."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tkdebug.cli.command import Command
from tkdebug.cli.options import ANSWER_FORMATS, add_format, add_output
from tkdebug.errors import UsageError
from tkdebug.instrument.renderers.formats import ANSWERS, format_by_name
from tkdebug.terminal.text import tell

if TYPE_CHECKING:
    from tkdebug.advice.machines import Ceiling, Ceilings
    from tkdebug.instrument.recording.nvml import Nvml

_MS_TO_NS = 1e6
_RUNS_FOR_A_CLOCK = 20
_PREFIXES = ((1e12, "T"), (1e9, "G"))


class CeilingsCommand(Command):
    """Measures the limits of the GPU here, keeps and prints the figures."""

    help = "measure what the GPU here reaches, for the predictions of advise"
    description = (
        "Measure bandwidth of memory and of the second-level cache, products on tensor cores and "
        "FMAs of fp32 on the GPU here, in a few seconds, and keep the figures beside compiled "
        "kernels. advise predicts by them from then on, instead of by a data sheet."
    )

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add how the figures are shown."""
        add_format(parser, ANSWER_FORMATS, by_name=True)
        add_output(parser)

    def run(self, options: argparse.Namespace) -> int:
        """Measure, keep, print; the result is the exit status."""
        from tkdebug.advice.machines import as_json, save
        from tkdebug.cli.places import check_writable, put_out
        from tkdebug.runtime.device.platform import platform_in_force

        if options.output is not None:
            check_writable("-o", options.output)
        format_name = options.format or format_by_name(options.output, ANSWERS)
        obstacle = platform_in_force().obstacle()
        if obstacle is not None:
            raise UsageError(
                f"ceilings are measured on a GPU, and there is none to run on: {obstacle}"
            )
        ceilings = _measured()
        tell(f"kept in {save(ceilings)}; tkdebug advise predicts by them")
        text = as_json(ceilings) if format_name == "json" else "".join(ceilings_text(ceilings))
        put_out((text,), options.output)
        return 0


COMMAND = CeilingsCommand()


def ceilings_text(ceilings: Ceilings) -> Iterator[str]:
    """Yield the figures as text: each in a data sheet's unit, with its clock and its spread."""
    from tkdebug.advice.machines import MACHINES, UNITS

    yield (
        f"{ceilings.name}, {ceilings.sms} multiprocessors, {ceilings.target}, driver "
        f"{ceilings.driver or 'unknown'}, {ceilings.date}\n"
    )
    for name, figure in ceilings.figures.items():
        clock = "clock unknown" if figure.sm_mhz is None else f"at {figure.sm_mhz} MHz"
        yield (
            f"  {name:<12} {_rate(figure.rate, UNITS[name]):>14}  {clock}, "
            f"{figure.repeats} repeats from {_rate(figure.lowest, UNITS[name])} "
            f"to {_rate(figure.highest, UNITS[name])}\n"
        )
    machine = MACHINES.get(ceilings.target)
    if machine is None:
        known = ", ".join(MACHINES)
        yield f"tkdebug advise predicts for {known}, not for {ceilings.target}\n"


def _rate(rate: float, unit: str) -> str:
    scale, prefix = next((p for p in _PREFIXES if rate >= p[0]), _PREFIXES[-1])
    return f"{rate / scale:.4g} {prefix}{unit}"


class _Events:
    """Times by CUDA events around whole runs, clocks by NVML."""

    def __init__(self, nvml: Nvml | None) -> None:
        self._nvml = nvml

    def time_ns(self, run: Callable[[], object]) -> float:
        """Return the time that `run` takes on the device."""
        import torch

        event: Any = torch.cuda.Event
        began, ended = event(enable_timing=True), event(enable_timing=True)
        # The GPU is still at this one while the host submits the one that is timed.
        run()
        began.record()
        run()
        ended.record()
        ended.synchronize()
        return float(began.elapsed_time(ended)) * _MS_TO_NS

    def sm_mhz(self, run: Callable[[], object]) -> int | None:
        """The clock of the multiprocessors while `run` runs; None if it is not known."""
        import torch

        for _ in range(_RUNS_FOR_A_CLOCK):
            run()
        state = None if self._nvml is None else self._nvml.state(torch.cuda.current_device(), True)
        torch.cuda.synchronize()
        return None if state is None else state.sm_clock_mhz


@contextmanager
def _bare_and_native() -> Iterator[None]:
    """Have kernels run natively and bare, whatever environment and caller ask for scripts."""
    from tkdebug import knobs
    from tkdebug.runtime.device.modes import mode

    with (
        knobs.scope(interpret_kernels=(), check_launches="none", watches=()),
        mode("native"),
    ):
        yield


def _measured() -> Ceilings:
    import torch

    from tkdebug.advice.machines import Ceilings
    from tkdebug.ceilings import Sizes, higher, loads, measure
    from tkdebug.compiler.targets.registered_backends import target_of
    from tkdebug.instrument.recording.nvml import Nvml
    from tkdebug.runtime.device.driver import driver

    try:
        nvml: Nvml | None = Nvml()
    except OSError as error:
        tell(f"clocks are not known: {error}")
        nvml = None
    device = torch.cuda.current_device()
    properties = torch.cuda.get_device_properties(device)
    capability = properties.major * 10 + properties.minor
    state = None if nvml is None else nvml.state(device, False)
    timing = _Events(nvml)
    sms = int(properties.multi_processor_count)
    figures: dict[str, Ceiling] = {}
    with _bare_and_native():
        for load in loads(sms, capability, Sizes(), "cuda"):
            figures[load.name] = higher(figures.get(load.name), measure(load, timing))
            del load  # its tensors
            torch.cuda.empty_cache()
    return Ceilings(
        gpu=f"GPU-{properties.uuid}" if state is None else state.gpu,
        name=str(properties.name),
        driver="" if nvml is None else nvml.driver_version(),
        target=target_of(driver.active.get_current_target().arch).name,
        sms=sms,
        date=time.strftime("%Y-%m-%d"),
        figures=figures,
    )
