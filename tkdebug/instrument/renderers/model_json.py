"""The model of a run as JSON (`docs/model.schema.json`): what the page and notebooks show."""

from __future__ import annotations

from collections.abc import Iterator

from tkdebug.instrument.home.json_text import plain
from tkdebug.instrument.home.model import model_of
from tkdebug.instrument.records import FaultGroup
from tkdebug.instrument.session import Session
from tkdebug.instrument.text_forms import json_text


def render(session: Session, faults: tuple[FaultGroup, ...]) -> Iterator[str]:
    """Yield the model as one JSON object."""
    yield json_text(plain(model_of(session, faults))) + "\n"
