"""Imports torch for a script that this process is about to run."""

from __future__ import annotations

import gc
import sys

from tkdebug.runtime.device.torch_package import check_importable


def import_torch() -> None:
    """Import torch, and have collections of garbage leave out what is there by then.

    It stays to the end, and is a million objects: with torch 2.13, collections took 0.15 of the
    1.07 s of its import, and each full one after that 0.07 to 0.1 s.

    Raises:
        UsageError: this Python has none, or one that cannot be imported.
    """
    if "torch" in sys.modules or not gc.isenabled():
        check_importable()
        return
    gc.disable()
    try:
        check_importable()
        gc.freeze()
    finally:
        gc.enable()
