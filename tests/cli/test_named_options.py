"""Messages name only commands and options that there are: all texts of the package are looked at.

`tkdebug run --mode interpret` has to be a command with that option. An option without a command is
one of every command that the file's messages are for.
"""

import argparse
import ast
import re
from pathlib import Path

import pytest

import tkdebug
from tkdebug.cli.command_line import build_parser
from tkdebug.compat.proton import viewer

ROOT = Path(tkdebug.__file__).parent
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]+|-[a-z](?![\w-]))")
CALL = re.compile(r"`tkdebug ([a-z]+)([^`]*)`|\btkdebug ([a-z]+)([^`;\n]*)")
# Other programs' options, and one whose command is named in other words; variables of CSS.
FOREIGN = re.compile(
    r"var\(--[^)]*\)|((-m )?pip install|chmod|ptxas|nvcc|python) [^;`]*|-lineinfo|-O3|"
    r"a run recorded with --watch"
)
ASKED = ("passes", "lines", "advise")
# Which commands have messages of a file, if it names options without a command.
PLACES = {
    "causes/": ("run",),
    "cli/command_line.py": None,  # of each there is a test of its own
    "cli/line_answers/": ("lines",),
    "cli/options.py": None,
    "cli/places.py": ("report", *ASKED, "ceilings"),
    "cli/runs/compiled_run.py": ASKED,
    "cli/runs/reproduced_run.py": ("reproduce",),
    "cli/runs/varied_run.py": ("diverge",),
    "cli/runs/": ("run",),
    "cli/script/": ("run", "debug", *ASKED),
    "compat/gpu_failures/": ("run",),
    "compat/op_origins.py": ("run",),
    "debugger/console/breakpoint_commands.py": ("run",),
    "findings/": ("run",),
    "instrument/launch_listeners/": ("run",),
    "instrument/notebook.py": ("run",),
    "instrument/passes_report.py": ("passes",),
    "instrument/recording/": ("run",),
    "instrument/renderers/formats.py": ("report", *ASKED, "ceilings"),
    "instrument/renderers/joined.py": ("report",),
    "instrument/renderers/passes_": ("passes",),
    "instrument/report.py": ("report",),
    "instrument/session.py": ("report", *ASKED),
    "knobs/": ("run",),
    "mcp_server/recorded_tools.py": ("report",),
    "precision/references.py": ("numerics",),
    "reproduction/": ("reproduce",),
    "runtime/advising/": ("run", "advise"),
    "skills/": ("skills",),
    "tui/": ("run", "debug"),
    "tui/home/": ("run",),
    "variations/triton_runs.py": ("diverge",),
    "verification/": ("verify",),
}
_, COMMANDS = build_parser()


def options_of(command):
    # `-m` is read before the parser sees it, where a script can be given.
    read = {"-m"} if "script.py" in (COMMANDS[command].usage or "") else set()
    return read | set(COMMANDS[command]._option_string_actions)


def options_of_plugin():
    parser = argparse.ArgumentParser()

    class Group:
        addoption = staticmethod(parser.add_argument)

    class Parser:
        getgroup = staticmethod(lambda *names: Group)
        addini = staticmethod(lambda *names: None)

    from tkdebug import pytest_plugin

    pytest_plugin.pytest_addoption(Parser)
    return set(parser._option_string_actions)


def texts_of(tree):
    """The line and text of each string but docstrings; `…` stands for what is put in."""
    passed = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            passed.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            parts = [one.value if isinstance(one, ast.Constant) else "…" for one in node.values]
            passed.update(map(id, node.values))
            yield node.lineno, "".join(parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in passed:
                yield node.lineno, node.value


def place_of(file):
    return max((place for place in PLACES if file.startswith(place)), key=len, default=None)


def wrong_in_calls(text):
    """Return the mistakes of commands in a text, and the text without the commands."""
    wrong = []
    for call in CALL.finditer(text):
        quoted = call[1] is not None
        command, rest = (call[1], call[2]) if quoted else (call[3], call[4])
        if command not in COMMANDS:
            # "tkdebug reads 0 there" is no command.
            wrong += [f"no command {command}"] if quoted else []
            continue
        words = rest if quoted else rest.partition(",")[0]
        text = text.replace(f"tkdebug {command}{words}", "")
        words = words.partition("script.py")[0]  # what follows is the script's
        known = options_of(command)
        wrong += [f"{command} has no {one}" for one in OPTION.findall(words) if one not in known]
    return wrong, text


# What a text that counts has in the file; parsing takes ten times as long.
MAY_COUNT = re.compile(rf"{OPTION.pattern}|tkdebug (?!import\b)")
FILES = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.rglob("*.py"))]


@pytest.mark.parametrize("folder", sorted({file.partition("/")[0] for file in FILES}))
def test_messages_name_only_commands_and_options_that_there_are(folder):
    wrong = []
    for file in (one for one in FILES if one.partition("/")[0] == folder):
        place, source = place_of(file), (ROOT / file).read_text()
        for line, whole in texts_of(ast.parse(source if MAY_COUNT.search(source) else "")):
            if " " not in whole.strip():  # a word: an option's own name, a key
                continue
            found, text = wrong_in_calls(FOREIGN.sub("", whole))
            if file.startswith("pytest_plugin/"):
                known = options_of_plugin()
            elif file == "compat/proton/viewer.py":
                known = set(viewer.command_parser()._option_string_actions)
            elif file.startswith("cli/commands/"):
                known = options_of(Path(file).stem) if Path(file).stem in COMMANDS else set()
            elif place is None:
                known = set()
            elif PLACES[place] is None:
                known = set().union(*map(options_of, COMMANDS))
            else:
                known = set.intersection(*map(options_of, PLACES[place]))
            found += [f"no {one}" for one in OPTION.findall(text) if one not in known]
            wrong += [f"{file}:{line}: {one}, in {whole!r}" for one in found]
    assert not wrong, "\n".join(wrong)
