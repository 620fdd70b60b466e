import pytest

from tkdebug.cli import main


@pytest.fixture
def run_main(capsys):
    """Run the command in this process: its status, stdout and stderr."""

    def run(*arguments):
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as error:  # argparse's way out
            status = error.code
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run
