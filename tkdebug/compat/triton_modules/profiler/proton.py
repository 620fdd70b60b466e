"""`triton.profiler.proton`: the command."""

from __future__ import annotations

from tkdebug.compat.proton.command import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
