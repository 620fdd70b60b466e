"""Kinds of faults and their explanations, as data that `docs/fault_kinds.py` makes of faults.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A kind of fault.

    Attributes:
        summary: what happened, in a line.
        severity: "error", "warning", or the condition for each.
        interpreted: when an interpreted kernel is checked for it.
        on_a_gpu: when a native kernel is checked for it.
        text: example, fix and what is no fault, as Markdown.
    """

    name: str
    summary: str
    severity: str
    interpreted: str
    on_a_gpu: str
    text: str

    def as_json(self, *, has_text: bool = True) -> dict[str, str]:
        """Return its fields, without the text where that is not asked for."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return fields if has_text else {k: v for k, v in fields.items() if k != "text"}

    def as_text(self) -> str:
        """Return it as people read it."""
        return (
            f"{self.name}: {self.summary}\n"
            f"severity: {self.severity}; interpreted: {self.interpreted}; "
            f"on a GPU: {self.on_a_gpu}\n\n{self.text}\n"
        )


@lru_cache(maxsize=1)
def fault_kinds() -> Mapping[str, FaultKind]:
    """Return all kinds by their names, in the order of the page of faults."""
    data = json.loads(files("tkdebug.findings").joinpath("fault_kinds.json").read_text("utf-8"))
    return {name: FaultKind(name=name, **fields) for name, fields in data.items()}
