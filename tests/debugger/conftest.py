import importlib.util
import io
import sys
from pathlib import Path

import pytest

from tkdebug.cli import main
from tkdebug.compat import install

sys.path.insert(0, str(Path(__file__).parent))
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def standin():
    installed = install("interpret")
    yield
    installed.uninstall()


@pytest.fixture(scope="module")
def example(standin):
    """Loads an example by its name."""
    loaded = {}

    def load(name):
        if name not in loaded:
            spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
            loaded[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(loaded[name])
        return loaded[name]

    return load


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Run the command with a home and a stdin of its own: status, stdout, stderr.

    What is typed is text, or a stream; None for a stdin that is closed.
    """
    monkeypatch.setenv("HOME", str(tmp_path))

    def call(*words, typed=None):
        stdin = io.StringIO(typed) if isinstance(typed, str) else typed
        monkeypatch.setattr("sys.stdin", stdin)
        try:
            status = main(["debug", *map(str, words)])
        except SystemExit as error:
            status = error.code
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call
