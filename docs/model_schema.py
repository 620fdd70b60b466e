"""Makes docs/model.schema.json: the model of a run as JSON, by its records.

python docs/model_schema.py
"""

from __future__ import annotations

import json
from pathlib import Path

from tkdebug.instrument.home.json_text import schema

FILE = Path(__file__).with_name("model.schema.json")


def text() -> str:
    """Return what the file should have."""
    return json.dumps(schema(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
