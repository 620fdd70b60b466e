"""A session whose every text is hostile, and an ordinary one, recorded by hand."""

from dataclasses import replace
from pathlib import Path

from launching import compiled, fault, launch

from tkdebug.advice.records import LineTime, Remark
from tkdebug.errors import Frame
from tkdebug.instrument.recorder import Recorder
from tkdebug.records.events import ArgumentInfo, Cause, SourceEdit
from tkdebug.records.hook_chain import HOOKS

MARKUP = "<img src=x onerror=alert(1)>"
CLOSING = "</script><script>alert(2)</script>"
TEXT = f"{MARKUP}{CLOSING}{{{{7*7}}}}\"'&"


def record(path: Path, script: Path, text: str = "", launches: int = 3) -> Path:
    """Record a run of some launches, with `text` wherever a session has words."""
    script.write_text(f"def add_kernel():  # {text}\n    for k in range(9):\n        x = load(p)\n")
    frames = (Frame(str(script), 3, f"add_kernel{text}"),)
    name = f"add_kernel{text}"
    with Recorder(path, script=f"k{text}.py", argv=(text,), output=False):
        artifacts = {"source": text, "tile-ir": f"tt.func {text}", "ptx": f"ret; {text}"}
        HOOKS.compiled(
            compiled(
                script,
                name=name,
                hash="h",
                source=script.read_text(),
                signature=f"(x: {text})",
                artifacts=artifacts,
                op_lines={"tile-ir": {1: frames}, "ptx": {1: frames}},
            )
        )
        arguments = (ArgumentInfo("x", text, text), ArgumentInfo("y", "*fp32", "", (4, 8), (8, 1)))
        first = launch(name, kernel_hash="h", scopes=(text,), make_arguments=lambda: arguments)
        for _ in range(launches - 1):
            launch(name, kernel_hash="h", error=text or None)
        edit = SourceEdit(str(script), 3, (text,), (text,))
        cause = Cause("fixes", (edit,), got=text, expected=text, why=text, facts=(text,))
        of_line = {"frames": frames, "kernel": name, "launch_id": first.id}
        HOOKS.fault(
            replace(fault(script, message=f"bad {text}", hint=f"`{text}`", tensor=text), **of_line)
        )
        HOOKS.fault(replace(fault(script, kind="mismatch", cause=cause), **of_line))
        HOOKS.record(LineTime(name, "h", first.id, str(script), 3, 1.0, 10.0))
        HOOKS.record(Remark(name, "h", first.id, str(script), 3, f"slow{text}", f"why {text}"))
    return path
