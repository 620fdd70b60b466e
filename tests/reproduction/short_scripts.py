"""Short scripts that `tkdebug reproduce` writes in tests."""

from contextlib import redirect_stdout
from io import StringIO

from answer_schemas import valid

from tkdebug.cli import main


def reproduced(folder, name, text, *options, target=None):
    """Write a script, reproduce its fault; return the answer and the short script's text."""
    (folder / f"{name}.py").write_text(text)
    short = folder / f"{name}_short.py"
    words = [*options, "--format", "json", "-o", str(short), target or str(folder / f"{name}.py")]
    with redirect_stdout(StringIO()) as out:
        status = main(["reproduce", *words])
    assert status == 0
    return valid("reproduce", out.getvalue()), short.read_text()
