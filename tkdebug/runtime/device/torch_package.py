"""The import of torch, which kernels run on: one clear line where it cannot be imported."""

from __future__ import annotations

import gc
import sys
from importlib.util import find_spec

from tkdebug.errors import UsageError


def torch_is_installed() -> bool:
    """Whether this Python has a torch; whether that can be imported is another matter."""
    return find_spec("torch") is not None


def check_installed() -> None:
    """Check that torch is installed, without importing it, which takes a second or more.

    Raises:
        UsageError: this Python has no torch.
    """
    if not torch_is_installed():
        raise UsageError(
            f"torch is not installed in {sys.executable}, and kernels run on it; pip install torch"
        )


def check_importable() -> None:
    """Import torch.

    Raises:
        UsageError: this Python has no torch, or one that cannot be imported.
    """
    check_installed()
    try:
        import torch  # noqa: F401  heavy: only where a kernel is to run
    except Exception as error:  # a half-installed torch raises anything, from OSError on
        text = " ".join(str(error).split())[:200]
        raise UsageError(
            f"torch cannot be imported ({type(error).__name__}: {text}); install it again"
        ) from error


def import_torch() -> None:
    """Import torch, and keep its objects out of later garbage collections.

    It stays to the end, and is a million objects: with torch 2.13, collections took 0.15 of the
    1.07 s of its import, and each full one after that 0.07 to 0.1 s.

    Raises:
        UsageError: this Python has no torch, or one that cannot be imported.
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
