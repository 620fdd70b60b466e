"""`triton.profiler.mode`: there are no modes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BaseMode:
    """What all modes are, each of which `start` refuses by name."""

    name: str

    def __str__(self) -> str:
        return self.name


__all__ = ["BaseMode"]
