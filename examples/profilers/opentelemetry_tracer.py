"""Launches as spans of OpenTelemetry, with the facts of their kernels; faults are events of them.

    pip install opentelemetry-sdk
    tkdebug run examples/profilers/opentelemetry_tracer.py

A span is a child of the application's span that is current where the kernel is launched. It ends
when the launch does: of a native launch that is the host's part, as with any span of a client.
"""

from __future__ import annotations

from opentelemetry import trace

from tkdebug.instrument import KernelObject, add_hook, kernel_launch_enter, kernel_launch_exit
from tkdebug.records.events import Fault


class KernelTracer:
    """Makes a span of each launch while it is in force, as a context manager."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer
        self._spans: dict[int, trace.Span] = {}

    def __enter__(self) -> KernelTracer:
        self._hooks = [
            kernel_launch_enter(self._began),
            kernel_launch_exit(self._ended),
            add_hook(fault=self._fault),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _began(self, kernel: KernelObject) -> None:
        facts = {
            "code.function.name": kernel.name,
            "code.file.path": kernel.file,
            "code.line.number": kernel.line,
            "kernel.grid": kernel.grid,
            "kernel.mode": kernel.mode,
            "kernel.registers": kernel.registers,
            "kernel.shared_bytes": kernel.shared_bytes,
        }
        known = {name: fact for name, fact in facts.items() if fact is not None}
        span = self._tracer.start_span(kernel.name, kind=trace.SpanKind.CLIENT, attributes=known)
        self._spans[kernel.correlation_id] = span

    def _fault(self, fault: Fault) -> None:
        span = self._spans.get(fault.launch_id)
        if span is not None and fault.is_open:
            place = {"code.file.path": fault.file or "", "code.line.number": fault.line or 0}
            span.add_event(fault.kind, {"message": fault.message, **place})
            span.set_status(trace.StatusCode.ERROR, f"{fault.kind}: {fault.message}")

    def _ended(self, kernel: KernelObject) -> None:
        self._spans.pop(kernel.correlation_id).end()


if __name__ == "__main__":
    import os
    import sys

    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from vector_add import main

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))
    tracer = provider.get_tracer("kernels")
    with KernelTracer(tracer), tracer.start_as_current_span("vector_add"):
        main()
