"""Runs kernel tests for the GitHub Action (`action.yml`), and writes its reports and a summary.

Inputs are the environment variables INPUT_…, all from a workflow, and a workflow may take them from
a pull request: they are checked before anything is installed, and no shell sees them. Texts of the
run in the summary are code that Markdown does not interpret. Only the standard library is used.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODES = ("interpret", "native", "auto")
_TKDEBUG = (sys.executable, "-m", "tkdebug")
# Faults that the summary lists, and characters of each text.
_LISTED = 20
_SHOWN = 200
_REPORTS = (("html", "page.html"), ("sarif", "faults.sarif"), ("json", "report.json"))


class InputError(Exception):
    """An input that is refused, with what was got and expected."""


@dataclass(frozen=True)
class Inputs:
    """The checked inputs of the action."""

    tests: tuple[str, ...]
    script: str
    arguments: tuple[str, ...]
    mode: str
    checks: tuple[str, ...]
    baseline: str
    requirements: str
    name: str


def read_inputs(variables: Mapping[str, str], workspace: Path) -> Inputs:
    """Return the inputs; raise InputError for one that does not fit."""
    if variables.get("GITHUB_EVENT_NAME") == "pull_request_target":
        raise InputError(
            "the event pull_request_target: its token may write, and the code of any fork would "
            "run with it; use pull_request"
        )

    def text(name: str) -> str:
        return variables.get(f"INPUT_{name}", "").strip()

    def file(name: str) -> str:
        value = text(name)
        return _in_checkout(name.lower(), value, workspace) if value else ""

    for switch in ("UPLOAD_SARIF", "COMMENT"):
        name = switch.lower().replace("_", "-")
        _matching(name, text(switch), "true|false", "true or false")
    script = file("SCRIPT")
    tests = () if script else text("TESTS").split()
    checks = text("CHECKS").split()
    named = "at most 60 letters, digits, `_`, `.` and `-`"
    return Inputs(
        tests=tuple(_in_checkout("tests", each, workspace) for each in tests),
        script=script,
        arguments=tuple(line.strip() for line in text("ARGUMENTS").splitlines() if line.strip()),
        mode=_matching("mode", text("MODE"), "|".join(MODES), f"one of {', '.join(MODES)}"),
        checks=tuple(_matching("checks", each, "[a-z][a-z-]*", "their names") for each in checks),
        baseline=file("BASELINE"),
        requirements=file("REQUIREMENTS"),
        name=_matching("name", text("NAME"), "[A-Za-z0-9_.-]{1,60}", named),
    )


def _matching(name: str, value: str, pattern: str, expected: str) -> str:
    if not re.fullmatch(pattern, value):
        raise InputError(f"input {name}: got {value!r}, expected {expected}")
    return value


def _in_checkout(name: str, value: str, workspace: Path) -> str:
    path = (workspace / value.partition("::")[0]).resolve()
    if value.startswith("-") or not path.exists() or not path.is_relative_to(workspace):
        raise InputError(f"input {name}: got {value!r}, expected a path in the checkout")
    return value


def run_command(inputs: Inputs, session: Path) -> list[str]:
    """Return the command that runs the tests or the script, recorded into `session`."""
    command = [*_TKDEBUG, "run", "--no-tui", "--mode", inputs.mode, "-o", str(session)]
    plugin = ["-m", "pytest", "-p", "tkdebug.pytest_plugin", "--tkdebug-mode", inputs.mode]
    for check in inputs.checks:
        command += ["--check", check]
        plugin += ["--tkdebug-check", check]
    if inputs.baseline:
        command += ["--baseline", inputs.baseline]
        plugin += ["--tkdebug-baseline", inputs.baseline]
    if inputs.script:
        return [*command, inputs.script, *inputs.arguments]
    return [*command, *plugin, *inputs.arguments, *inputs.tests]


def failing(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the faults of a JSON report that fail a run."""
    return [
        fault
        for fault in report["faults"]
        if (fault["severity"], fault["state"]) == ("error", "open")
    ]


def summary(report: Mapping[str, Any], status: int, workspace: Path) -> str:
    """Return Markdown that says how the run went, with a row for each of the first faults."""
    faults = failing(report)
    kernels = len({launch["kernel"] for launch in report["launches"]})
    went = f"{_counted(len(faults), 'fault')} in {_counted(len(report['launches']), 'launch')}"
    lines = [f"### tkdebug: {went} of {_counted(kernels, 'kernel')}; exit status {status}", ""]
    if faults:
        lines += ["| at | kind | kernel | what |", "|---|---|---|---|"]
    for fault in faults[:_LISTED]:
        place = f"{_relative(fault['file'], workspace)}:{fault['line']}"
        cells = (place, fault["kind"], fault["kernel"], fault["message"])
        lines.append(f"| {' | '.join(_code(cell) for cell in cells)} |")
    if len(faults) > _LISTED:
        lines += ["", f"and {len(faults) - _LISTED} more"]
    return "\n".join(lines) + "\n"


def _counted(count: int, noun: str) -> str:
    plural = "es" if noun.endswith("h") else "s"
    return f"{count:,} {noun}{'' if count == 1 else plural}"


def _relative(file: str, workspace: Path) -> str:
    path = Path(file)
    return str(path.relative_to(workspace)) if path.is_relative_to(workspace) else path.name


def _code(text: str) -> str:
    """Return a cell of a table with `text` as code; nothing in it is Markdown, a link or a name."""
    plain = re.sub(r"\s+", " ", text).replace("`", "'")
    shown = "".join(character for character in plain if character.isprintable())[:_SHOWN]
    return f"`{shown.replace('|', chr(92) + '|')}`" if shown.strip() else ""


def main() -> int:
    """Install, run and report; the result is 0 where the action's next steps can go on."""
    workspace = Path(os.environ["GITHUB_WORKSPACE"]).resolve()
    try:
        inputs = read_inputs(os.environ, workspace)
    except InputError as error:
        print(f"::error::tkdebug: {error}")
        return 2
    install = [sys.executable, "-m", "pip", "install", os.environ["GITHUB_ACTION_PATH"], "pytest"]
    if inputs.requirements:
        install += ["-r", inputs.requirements]
    subprocess.run(install, check=True, cwd=workspace)

    folder = Path(os.environ["RUNNER_TEMP"]) / f"tkdebug-{inputs.name}"
    folder.mkdir(exist_ok=True)
    session = folder / "run.tkd"
    status = subprocess.run(run_command(inputs, session), cwd=workspace).returncode
    outputs = {"status": str(status)}
    if session.exists():
        for kind, name in _REPORTS:
            report = [*_TKDEBUG, "report", str(session), "--format", kind]
            subprocess.run([*report, "-o", str(folder / name)], check=True, cwd=workspace)
        data = json.loads((folder / "report.json").read_text("utf-8"))
        text = summary(data, status, workspace)
        (folder / "summary.md").write_text(text, "utf-8")
        with Path(os.environ["GITHUB_STEP_SUMMARY"]).open("a", encoding="utf-8") as file:
            file.write(text)
        outputs |= {"folder": str(folder), "faults": str(len(failing(data)))}
    with Path(os.environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as file:
        file.writelines(f"{name}={value}\n" for name, value in outputs.items())
    return 0


if __name__ == "__main__":
    sys.exit(main())
