"""Whether the stand-in knows the installed torch: tested in a child process, once for each."""

from __future__ import annotations


def check_installed_torch() -> None:
    """Refuse a torch that is not built as those that are known."""
