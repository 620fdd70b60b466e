"""Reports, as the programs that they are for read them."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from launching import compiled, launch

from tkdebug.compat.proton import viewer
from tkdebug.instrument.recorder import Recorder
from tkdebug.instrument.report import write_report
from tkdebug.instrument.session import Session
from tkdebug.records.hook_chain import HOOKS
from tkdebug.records.scopes import SCOPES

LOADERS = Path(__file__).resolve().parents[1] / "loaders"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The path of a report, by its format."""
    folder = tmp_path_factory.mktemp("exported")
    (folder / "k.py").write_text("def k():\n    pass\n")
    with Recorder(folder / "run.tkd", script="k.py", output=False):
        HOOKS.compiled(compiled(folder / "k.py", name="inner"))
        launch("outer", duration_ns=1_500)
        step = SCOPES.enter("step")
        launch("inner", duration_ns=20)
        layer = SCOPES.enter("layer")
        launch("inner", duration_ns=30)
        SCOPES.exit(layer)
        launch("=cmd(),\"'", duration_ns=5)
        SCOPES.exit(step)

    def written(format_name):
        path = folder / f"run.{format_name}"
        with Session.open(folder / "run.tkd") as session:
            write_report(session, path, format_name)
        return path

    return written


@pytest.fixture(scope="module")
def profile(exported):
    """The profile that speedscope makes of it."""
    if shutil.which("node") is None or not (LOADERS / "node_modules" / "speedscope").is_dir():
        pytest.skip("needs speedscope: npm ci --ignore-scripts in tests/loaders")
    command = ["node", str(LOADERS / "speedscope.cjs"), str(exported("speedscope"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (only,) = json.loads(done.stdout)
    return only


def test_speedscope_has_kernels_in_their_scopes(profile, exported):
    found = [(call["name"], call["depth"]) for call in profile["calls"]]
    assert found == [
        ("outer", 0),
        ("step", 0),
        ("inner", 1),
        ("layer", 1),
        ("inner", 2),
        ("=cmd(),\"'", 1),
    ]
    assert profile["name"].startswith("interpreted, on the CPU, process ")
    inner = profile["calls"][2]
    assert (Path(inner["file"]).name, inner["line"]) == ("k.py", 1)


def test_speedscope_has_the_times(profile):
    assert profile["unit"] == "nanoseconds"
    lasted = [call["end"] - call["start"] for call in profile["calls"] if call["name"] != "step"]
    assert lasted == [1500, 20, 30, 30, 5]
    assert profile["weight"] == max(call["end"] for call in profile["calls"])


def test_hatchet_sums_scopes(exported):
    hatchet = pytest.importorskip("hatchet", reason="needs llnl-hatchet")
    frame = hatchet.GraphFrame.from_literal(json.loads(exported("hatchet").read_text())[:1])
    frame.update_inclusive_columns()
    data = frame.dataframe
    times = dict(zip(data["name"], data["time (ns) (inc)"], strict=True))
    assert times == {
        "ROOT": 1555,
        "outer": 1500,
        "step": 55,
        "layer": 30,
        "inner": 30,
        "=cmd(),\"'": 5,
    }
    assert data.loc[data["name"] == "inner", "count"].tolist() == [1, 1]
    # Its tree is of the column `time` where none is named.
    assert "1.500 outer" in frame.tree(precision=3, colormap="nocolor").replace("\x1b[0m", "")
    kernels = frame.filter(lambda row: row["time (ns)"] > 10)
    assert set(kernels.dataframe["name"]) == {"outer", "inner"}


@pytest.mark.parametrize(
    ("metric", "times"), [("time/ns", (1555.0, 1500.0)), ("avg_time/us", (0.389, 1.5))]
)
def test_proton_viewers_show_the_times(exported, metric, times, capsys):
    """Ours, and upstream's where it is on the PATH: it comes with Triton."""
    path, printed = str(exported("hatchet")), []
    show_profile([metric], path)
    printed.append(capsys.readouterr().out)
    upstream = shutil.which("proton-viewer")
    if upstream is not None:
        environment = {**os.environ, "PYTHONPATH": ""}
        done = subprocess.run(
            [upstream, "-m", metric, path], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    for text in printed:
        assert f"{times[0]:.3f} ROOT" in text
        assert f"{times[1]:.3f} outer" in text


def show_profile(metrics, path):
    viewer.print_tree(*viewer.parse(metrics, path))


def test_proton_viewer_finds_the_unit_of_the_time(exported):
    """Upstream's viewer takes the first metric that is called so, up to its parenthesis."""
    root, devices = json.loads(exported("hatchet").read_text())
    assert not devices
    named = [name for name in root["metrics"] if name.partition("(")[0].strip() == "time"]
    assert named == ["time (ns)"]


def test_pandas_reads_the_table(exported):
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    table = pandas.read_csv(exported("csv"))
    assert table.groupby("kernel")["duration_ns"].sum().to_dict() == {
        "outer": 1500, "inner": 50, "'=cmd(),\"'": 5
    }  # fmt: skip


def test_pandas_reads_launches_of_the_json_report(exported):
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    report = json.loads(exported("json").read_text())
    table = pandas.json_normalize(report["launches"])
    assert table["duration_ns"].tolist() == [1500, 20, 30, 5]


@pytest.mark.skipif(importlib.util.find_spec("jsonschema") is None, reason="needs jsonschema")
def test_the_published_schema_accepts_the_json_report(exported):
    import jsonschema

    schema = json.loads((LOADERS.parents[1] / "docs" / "report.schema.json").read_text())
    checker = jsonschema.validators.validator_for(schema)
    checker.check_schema(schema)
    report = json.loads(exported("json").read_text())
    assert list(checker(schema).iter_errors(report)) == []
    report["launches"][0]["grid"] = "3"
    assert list(checker(schema).iter_errors(report))
