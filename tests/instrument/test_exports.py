"""Formats for other programs' viewers: each is what its reader asks for."""

import csv
import io
import json
from dataclasses import fields
from pathlib import Path

import pytest
from launching import launch

from tkdebug.advice.records import LaunchCost, LineCost
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.report import render
from tkdebug.instrument.session import Session
from tkdebug.records.scopes import SCOPES

DOCS = Path(__file__).resolve().parents[2] / "docs"


def exported(path, format_name):
    with Session.open(path) as session:
        return "".join(render(session, format_name))


@pytest.fixture
def recorded(tmp_path):
    path = tmp_path / "run.tkd"
    recorder = Recorder(path, script="k.py", output=False).start()
    launch(grid=(3, 2, 1), duration_ns=1_500)
    step = SCOPES.enter("step")
    launch("inner", duration_ns=20)
    layer = SCOPES.enter("layer")
    launch("inner", duration_ns=30)
    SCOPES.exit(layer)
    launch("=cmd()\n", duration_ns=5)
    SCOPES.exit(step)
    recorder.stop(0)
    return path


def test_csv_has_a_line_for_each_launch(recorded):
    rows = list(csv.DictReader(io.StringIO(exported(recorded, "csv"))))
    assert [row["kernel"] for row in rows][1:] == ["inner", "inner", "'=cmd() "]
    assert [row["duration_ns"] for row in rows] == ["1500", "20", "30", "5"]
    assert (rows[0]["grid_x"], rows[0]["grid_y"], rows[0]["grid_z"]) == ("3", "2", "1")
    assert rows[2]["scopes"] == "step > layer"


def test_speedscope_opens_and_closes_frames_in_order(recorded):
    data = json.loads(exported(recorded, "speedscope"))
    assert data["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    names = [frame["name"] for frame in data["shared"]["frames"]]
    (profile,) = data["profiles"]
    assert (profile["type"], profile["unit"]) == ("evented", "nanoseconds")
    open_frames, last, spent = [], profile["startValue"], {}
    for event in profile["events"]:
        assert event["at"] >= last
        for frame in open_frames:
            spent[names[frame]] = spent.get(names[frame], 0) + event["at"] - last
        last = event["at"]
        if event["type"] == "O":
            open_frames.append(event["frame"])
        else:
            assert open_frames.pop() == event["frame"]
    assert not open_frames
    assert profile["endValue"] == last
    assert spent["inner"] == 50
    assert spent["layer"] >= 30


def test_hatchet_has_scopes_above_kernels(recorded):
    root, devices = json.loads(exported(recorded, "hatchet"))
    assert root["frame"] == {"name": "ROOT", "type": "root"}
    # They name what adds up: proton-viewer would take `time` for a time of another unit.
    assert root["metrics"] == {"time (ns)": 0, "count": 0}
    assert devices == {}
    step = next(child for child in root["children"] if child["frame"]["name"] == "step")
    assert [child["frame"]["name"] for child in step["children"]] == ["inner", "layer", "=cmd()\n"]
    inner = step["children"][0]
    assert inner["metrics"] == {"time": 0.02, "time (ns)": 20, "count": 1}


def test_an_empty_run_is_a_document(tmp_path):
    path = tmp_path / "empty.tkd"
    Recorder(path, script="k.py", output=False).start().stop(0)
    assert json.loads(exported(path, "speedscope"))["profiles"] == []
    assert json.loads(exported(path, "hatchet"))[0]["children"] == []
    assert exported(path, "csv").count("\n") == 1


def _check(value, schema, where="report"):
    """The part of JSON Schema that the published one uses."""
    kinds = schema.get("type")
    if "const" in schema:
        assert value == schema["const"], where
    if "enum" in schema:
        assert value in schema["enum"], where
    if kinds is not None:
        allowed = [kinds] if isinstance(kinds, str) else kinds
        assert _kind(value) in allowed or (_kind(value) == "integer" and "number" in allowed), where
    if isinstance(value, dict):
        missing = [key for key in schema.get("required", ()) if key not in value]
        assert not missing, f"{where}: {missing}"
        for key, inner in value.items():
            known = schema.get("properties", {}).get(key, schema.get("additionalProperties", {}))
            _check(inner, known, f"{where}.{key}")
    elif isinstance(value, list):
        assert schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)), where
        for inner in value:
            _check(inner, schema.get("items", {}), f"{where}[]")


def _kind(value):
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return {**names, dict: "object", type(None): "null"}[type(value)]


def test_the_json_report_is_what_its_schema_says(recorded):
    schema = json.loads((DOCS / "report.schema.json").read_text())
    data = json.loads(exported(recorded, "json"))
    _check(data, schema)
    assert set(data) == set(schema["properties"])
    assert set(data["launches"][0]) == set(schema["properties"]["launches"]["items"]["properties"])
    with pytest.raises(AssertionError, match=r"report\.launches\[\]\.grid"):
        _check({**data, "launches": [{**data["launches"][0], "grid": "3"}]}, schema)


@pytest.mark.parametrize(("key", "kind"), [("launch_costs", LaunchCost), ("line_costs", LineCost)])
def test_the_schema_has_the_fields_of_the_records(key, kind):
    schema = json.loads((DOCS / "report.schema.json").read_text())
    listed = schema["properties"][key]["items"]["properties"]
    assert list(listed) == [field.name for field in fields(kind)]
