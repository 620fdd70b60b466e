"""The interface of a pass, and one run of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tkdebug.compiler.ir.core import Module
from tkdebug.compiler.rewriting.rewriter import (
    PassRemark,
    RewriteCounter,
    Rewriter,
    RewriteRecord,
)

if TYPE_CHECKING:
    from tkdebug.plugins import Plugin


class Pass(Protocol):
    """One transformation of a module; its fields are its options."""

    @property
    def name(self) -> str:
        """The name on the command line: `eliminate-dead-code`."""
        ...

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Change `module` through `rewriter`, and commit."""
        ...


class ForeignPass:
    """A pass of a plugin in a pipeline; its changes are checked, and undone if they are wrong."""

    def __init__(self, plugin: Plugin, pass_: Pass) -> None:
        self.plugin = plugin
        self.pass_ = pass_

    @property
    def name(self) -> str:
        """The name of the plugin's pass."""
        return self.pass_.name

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """Run the plugin's pass, without checks."""
        self.pass_.run(module, rewriter)


@dataclass(frozen=True, slots=True)
class PassRun:
    """The record of one run of a pass.

    Attributes:
        time_ns: the time of the pass alone, without checks and snapshots.
        error: why the pass failed, "" if it did not.
        remarks: the reasons why the pass left ops unchanged, the last of each op and kind.
    """

    name: str
    time_ns: int
    records: tuple[RewriteRecord, ...]
    error: str = ""
    remarks: tuple[PassRemark, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether the pass recorded a change of the module."""
        return bool(self.records)


# Called with every pass's run, and the module as it left it; also when the pass failed.
RunCallback = Callable[[PassRun, Module], None]


def run_pass(
    pass_: Pass,
    module: Module,
    on_run: RunCallback | None,
    counter: RewriteCounter | None = None,
) -> PassRun:
    """Run one pass, without checks; if it raises, `on_run` is called with the error first."""
    rewriter = Rewriter(module, pass_.name, counter)
    start_ns = time.perf_counter_ns()
    try:
        pass_.run(module, rewriter)
        rewriter.commit()
    except Exception as error:
        if on_run is not None:
            time_ns = time.perf_counter_ns() - start_ns
            reason = str(error) or type(error).__name__
            on_run(PassRun(pass_.name, time_ns, tuple(rewriter.records), reason), module)
        raise
    time_ns = time.perf_counter_ns() - start_ns
    remarks = tuple({(one.op_id, one.kind): one for one in rewriter.remarks}.values())
    return PassRun(pass_.name, time_ns, tuple(rewriter.records), remarks=remarks)
