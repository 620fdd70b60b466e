"""`triton.profiler.viewer`."""

from __future__ import annotations

from tkdebug.compat.proton.viewer import main, parse, print_tree, read, show_metrics

__all__ = ["main", "parse", "print_tree", "read", "show_metrics"]

if __name__ == "__main__":
    main()
