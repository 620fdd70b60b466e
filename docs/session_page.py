"""Makes docs/session.md: the session file, by the records that are declared in tkdebug.

python docs/session_page.py
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import get_type_hints

from tkdebug.errors import Frame
from tkdebug.findings.baseline import KnownFault
from tkdebug.instrument.device_records import ActivityTotal
from tkdebug.instrument.records import TABLES
from tkdebug.instrument.session_file.tables import APPLICATION_ID, SCHEMA_VERSION, Stamp, table_of
from tkdebug.records.events import ArgumentInfo, Cause, FaultExtent, LoopRound, OpFacts, Rewrite
from tkdebug.records.storage import storage_of

PAGE = Path(__file__).with_name("session.md")
HEAD = f"""# The session file, schema {SCHEMA_VERSION}

This page is made by `python docs/session_page.py` from the records that are declared in `tkdebug`.

A recorded run (`tkdebug run -o run.tkd …`) is one SQLite database in WAL mode: `application_id` is
0x{APPLICATION_ID:X} ("tkdb"), `user_version` the schema's number. A reader refuses a session of
another schema and names its number. `tkdebug.instrument.session.Session` is the reader to use from
Python; it opens a run that goes on, one that was killed (with its `run.tkd-wal`), and a copy of
`run.tkd` alone.

One thread of each process writes, in transactions of at most 100 ms or 500 rows of new events; that
is what a killed script loses. Once CUDA is in use, or 2000 events have come, a process of its own
writes instead (Linux; `TKDEBUG_RECORDING_PROCESS=0` keeps the thread): it outlives the script,
stores what a killed script had recorded to the last launch, and ends. If it is killed itself,
recording stops with one line, and the script goes on. While another connection has the file
locked, of the script's own or of another program, what is recorded waits in memory, up to 200,000
events, and the script goes on; at its end the lock is waited for, 10 s at most.

The schema is in the main file from the start, and the data are moved there every second and at
the end, so a copy without the `-wal` lacks a second at most. A text is cut at 16 MiB, a process's
output at 64 MiB, and both say so in the text; a list or mapping whose JSON is longer is stored
empty.

A column has the name of its field. Numbers and texts lie as they are; a number beyond 64 bits lies
as text, and a time beyond them (from the year 2262 on) as a float. Tuples and mappings are JSON,
and a record inside of them is the list of its fields (those are at the end of this page). Times are
nanoseconds, `…_ns` of an instant since 1970.

A table that is called stamped begins with the columns of the first section.

A record type of your own is a frozen dataclass under `tkdebug.records.storage.stored`.
`HOOKS.record` (of `tkdebug.records.hook_chain`) stores one, `Session.records` reads them; its table
comes with its first record:

```python
@stored("remarks", indices=("line",))
@dataclass(frozen=True, slots=True)
class Remark:
    line: int
    text: str
```
"""
IN_JSON = (
    *(Frame, ArgumentInfo, Rewrite, OpFacts, KnownFault, ActivityTotal),
    *(FaultExtent, LoopRound, Cause),
)
NESTED = re.compile(r"\b(?:\w+\.)+(\w+)")


def page() -> str:
    """The whole page."""
    sections = [_section("Stamp", Stamp, "")]
    for kind in TABLES:
        storage = storage_of(kind)
        keys = [f"key {', '.join(storage.key)}"] if storage.key else []
        notes = ["stamped"] if storage.stamped else keys
        notes += [f"index {field}" for field in storage.indices]
        notes += [f"unique {field}" for field in storage.unique]
        sections.append(_section(table_of(kind).name, kind, "; ".join(notes)))
    sections += [_section(f"In JSON: {kind.__name__}", kind, "") for kind in IN_JSON]
    return "\n".join((HEAD, *sections))


def _section(title: str, kind: type, notes: str) -> str:
    text, _, attributes = inspect.cleandoc(kind.__doc__ or "").partition("\n\nAttributes:\n")
    told = _attributes(attributes)
    hints = get_type_hints(kind)
    unknown = told.keys() - hints.keys()
    assert not unknown, f"{kind.__qualname__} describes {unknown}, which are no fields of it"
    rows = [f"| `{n}` | {_type_name(h)} | {told.get(n, '')} |" for n, h in hints.items()]
    lines = [f"## {title}", "", text]
    if notes:
        lines += ["", f"({notes})"]
    return "\n".join([*lines, "", "| column | type | |", "|---|---|---|", *rows, ""])


def _attributes(text: str) -> dict[str, str]:
    told: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc(text).splitlines():
        if line.startswith(" "):
            told[name] += " " + line.strip()
        elif line:
            name, _, rest = line.partition(": ")
            told[name] = rest
    return told


def _type_name(hint: object) -> str:
    text = hint.__name__ if isinstance(hint, type) and not hasattr(hint, "__args__") else str(hint)
    if text.startswith("typing.Literal"):
        return "text"
    name = NESTED.sub(r"\1", text).replace("|", "\\|")
    return f"`{name}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
