"""Runs at the start of Python processes that a script under tkdebug starts.

Arms them like their parent, then runs the next `sitecustomize` on the path.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent


def _elsewhere() -> list[str]:
    return [entry for entry in sys.path if Path(entry or ".").resolve() != _FOLDER]


def _run_the_next() -> None:
    spec = PathFinder.find_spec("sitecustomize", _elsewhere())
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _arm() -> None:
    if importlib.util.find_spec("tkdebug") is None:
        # A parent that ran from a checkout: its folder, last, so that it hides nothing.
        sys.path.append(str(_FOLDER.parents[2]))
    from tkdebug.compat.children import arm

    arm()


_arm()
_run_the_next()
