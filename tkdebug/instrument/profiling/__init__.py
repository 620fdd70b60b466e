"""Profiling sessions of a script: launches under named scopes, summed up as trees or as traces."""

from __future__ import annotations

from tkdebug.errors import TkError


class ProfileError(TkError, RuntimeError):
    """A profiling session cannot do as asked; a RuntimeError, as Proton's own are."""
