"""Answers of commands as JSON, held against their published schemas."""

import json
from pathlib import Path

from jsonschema import Draft202012Validator

DOCS = Path(__file__).parents[1] / "docs"


def valid(name, text):
    """Return what the JSON of a command says, after its schema has taken it."""
    data = json.loads(text)
    schema = json.loads((DOCS / f"{name}.schema.json").read_text("utf-8"))
    Draft202012Validator(schema).validate(data)
    return data
