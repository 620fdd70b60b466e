import pytest
from cli_scripts import LAUNCH

from tkdebug.cli import main
from tkdebug.records.hook_chain import HOOKS


@pytest.fixture
def write_script(tmp_path):
    """Write a script; what it launches by hand it launches through `launch`."""

    def write(body, name="script.py"):
        path = tmp_path / name
        path.write_text(LAUNCH + body)
        return path

    return write


@pytest.fixture
def run_main(capsys):
    """Run the command in this process: its status, stdout and stderr."""

    def run(*arguments):
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as error:  # argparse's way out
            status = error.code
        assert HOOKS.launch is None
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run
