"""Makes docs/costs.md, what recording and checking cost, from sections of bench/RESULTS.md.

python docs/costs_page.py
"""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).with_name("costs.md")
RESULTS = Path(__file__).parents[1] / "bench" / "RESULTS.md"
SECTIONS = (
    "Whole programs",
    "A million launches",
    "Killed runs",
    "Costs of native checks",
    "Costs of checks",
)
HEAD = """# What it costs

What it costs to record a script, and to check its kernels, natively and interpreted. Each section
names the benchmark that writes or prints it. `python docs/costs_page.py` makes this page from
`bench/RESULTS.md`, which has the other benchmarks, too.
"""


def page() -> str:
    """Return the text of the page."""
    parts = re.split(r"(?m)^# ", RESULTS.read_text(encoding="utf-8"))
    by_title = {part.partition("\n")[0]: part.replace("\n## ", "\n### ") for part in parts}
    return "\n".join([HEAD, *(f"## {by_title[title].rstrip()}\n" for title in SECTIONS)])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
