"""Every command with JSON has a published schema, with a version."""

import argparse
import importlib.util
import json

import pytest
from answer_schemas import DOCS, valid
from jsonschema import Draft202012Validator, ValidationError

from tkdebug.cli import main
from tkdebug.cli.command_line import build_parser

SPEC = importlib.util.spec_from_file_location("made_schemas", DOCS / "answer_schemas.py")
MADE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MADE)


def commands_with_json():
    for name, parser in build_parser()[1].items():
        for action in parser._actions:
            is_format = "--format" in action.option_strings
            if isinstance(action, argparse.Action) and is_format and "json" in action.choices:
                yield name


@pytest.mark.parametrize("name", sorted({*commands_with_json(), *MADE.ANSWERS}))
def test_json_has_a_schema_with_a_version(name):
    schema = json.loads((DOCS / f"{name}.schema.json").read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    version = "format" if name == "ceilings" else "schema"
    assert version in schema["required"]
    assert schema["properties"][version] in ({"const": 1}, {"type": "integer"})
    assert f"{name}.schema.json" in (DOCS / "json.md").read_text("utf-8")


@pytest.mark.parametrize("name", sorted(MADE.ANSWERS))
def test_schemas_are_as_they_are_made(name):
    made = MADE.path(name).read_text("utf-8")
    assert made == MADE.text(name), "run python docs/answer_schemas.py"


def test_errors_and_explanations_are_as_their_schemas_say(capsys):
    assert main(["explain", "--errors=json", "nonsense"]) == 2
    error = capsys.readouterr().err
    valid("error", error)
    with pytest.raises(ValidationError):
        valid("error", error.replace('"next"', '"nxet"'))
    for words in ([], ["race"]):
        assert main(["explain", "--format", "json", *words]) == 0
        valid("explain", capsys.readouterr().out)
