"""Hooks of plugins (entry points `tkdebug.hooks`), and tools in C, before the first compile."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from typing import Any

from tkdebug.plugins import Plugin, loaded
from tkdebug.records.hook_chain import HOOKS, Hook

# Names shared libraries (`instrument.launch_listeners.native_tools`).
TOOL_VARIABLE = "TKDEBUG_TOOL"


@cache
def add_plugin_hooks() -> None:
    """Add them to the chain, once in a process; forked children have them already."""
    for plugin, hook in loaded("tkdebug.hooks", Hook):
        HOOKS.add(_guarded(plugin, hook))
    if os.environ.get(TOOL_VARIABLE):
        from tkdebug.instrument.launch_listeners.native_tools import load_tools_of_environment

        load_tools_of_environment()


def _guarded(plugin: Plugin, hook: Hook) -> Hook:
    """`hook`, which is silent from the first time on that one of its callbacks raises.

    Faults are shown besides: who installed a package must not miss them.
    """
    callbacks: dict[str, Any] = {
        field.name: _guarded_callback(plugin, callback)
        for field in fields(hook)
        if callable(callback := getattr(hook, field.name))
    }
    return replace(hook, **callbacks, shows_faults=False)


def _guarded_callback(plugin: Plugin, callback: Callable[..., None]) -> Callable[..., None]:
    def call(*arguments: Any) -> None:
        if plugin.problem:
            return
        try:
            callback(*arguments)
        except Exception as error:  # another distribution's code may raise anything
            plugin.fail(error)

    return call
