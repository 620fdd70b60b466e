"""Sections of RESULTS.md: each benchmark replaces its own and leaves the others; what it ran on."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path


def replace_section(path: Path, text: str) -> None:
    """Put `text`, whose first line is a `# title`, in the place of the section of that title."""
    title = text.splitlines()[0]
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    sections = [part.rstrip() + "\n" for part in re.split(r"(?m)^(?=# )", old) if part.strip()]
    kept = [text.rstrip() + "\n" if part.splitlines()[0] == title else part for part in sections]
    if not any(part.splitlines()[0] == title for part in sections):
        kept.append(text.rstrip() + "\n")
    path.write_text("\n".join(kept), encoding="utf-8")


def check_gpu() -> None:
    """End with one line where there is no GPU to measure on."""
    import torch

    if not torch.cuda.is_available():
        sys.exit(f"{Path(sys.argv[0]).name}: needs a GPU, and torch {torch.__version__} sees none")


def machine() -> str:
    """The processor, as the system names it."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}"


def versions(python: str, packages: Sequence[str]) -> str:
    """Return the versions of packages and Python itself, in the environment of `python`."""
    if python == sys.executable:
        found = {name: metadata.version(name) for name in packages}
        found["python"] = platform.python_version()
    else:
        code = (
            "import json, platform, sys; from importlib.metadata import version; "
            "print(json.dumps({**{p: version(p) for p in sys.argv[1:]}, "
            "'python': platform.python_version()}))"
        )
        found = json.loads(subprocess.check_output([python, "-c", code, *packages], text=True))
    return ", ".join(f"{name} {version}" for name, version in found.items())
