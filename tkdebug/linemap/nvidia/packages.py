"""Folders of NVIDIA's PyPI packages; nothing is imported to find them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path


def nvidia_folders() -> Iterator[Path]:
    """Folders of NVIDIA's PyPI packages: `nvidia/cu13` (CUDA 13) and `nvidia` itself (CUDA 12)."""
    for folder in package_folders("nvidia"):
        yield from sorted(folder.glob("cu[0-9]*"), reverse=True)
        yield folder


def package_folders(name: str) -> Iterator[Path]:
    """Folders of the package `name`, if it is installed."""
    # Looked up, not imported: importing Triton is slow, and `triton` may be tkdebug's own.
    spec = PathFinder.find_spec(name, sys.path)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(folder)
