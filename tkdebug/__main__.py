"""`python -m tkdebug`, the same as the `tkdebug` command."""

from __future__ import annotations

import sys

from tkdebug.cli import main

if __name__ == "__main__":
    sys.exit(main())
