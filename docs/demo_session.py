"""Makes the session that `tkdebug demo` shows, of examples/demo/layer.py.

python docs/demo_session.py      # again after a change of the script or of the session file
"""

from __future__ import annotations

import contextlib
import hashlib
import lzma
import os
import sqlite3
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "tkdebug" / "cli" / "demo.tkd.xz"
SCRIPT = "examples/demo/layer.py"
WATCHED = "acc = tl.dot(a, b, acc)"


def record(path: Path) -> None:
    """Run the script: it ends with a failed comparison, so its status says nothing."""
    lines = (ROOT / SCRIPT).read_text(encoding="utf-8").splitlines()
    line = next(n for n, text in enumerate(lines, 1) if text.strip() == WATCHED)
    told = ("--advise", "--target", "sm_90a", "--watch", f"{SCRIPT}:{line}:acc")
    words = ("run", "--no-tui", "--mode", "interpret", *told, "-o", str(path), SCRIPT)
    subprocess.run(
        [sys.executable, "-m", "tkdebug", *words],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )


def text_columns(session: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Yield the table and the name of each column, quoted."""
    tables = session.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (table,) in tables:
        for row in session.execute(f'PRAGMA table_info("{table}")').fetchall():
            yield f'"{table}"', f'"{row[1]}"'


def replace_all(session: sqlite3.Connection, old: str, new: str) -> None:
    """Replace a text in all columns of text."""
    for table, column in text_columns(session):
        session.execute(
            f"UPDATE {table} SET {column} = replace({column}, ?, ?) "
            f"WHERE typeof({column}) = 'text' AND instr({column}, ?)",
            (old, new, old),
        )


def forget_the_machine(session: sqlite3.Connection) -> None:
    """Make paths those of the repository; texts that lie by their hash get the new one."""
    for folder in (f"{ROOT}/", f"{sysconfig.get_paths()['purelib']}/", f"{sys.base_prefix}/"):
        replace_all(session, folder, "")
    for old, text in session.execute("SELECT hash, text FROM blobs").fetchall():
        new = hashlib.sha256(text.encode()).hexdigest()
        if new != old:
            replace_all(session, old, new)
    session.execute("UPDATE run SET host = 'demo'")


def main() -> None:
    """Record, clean, pack."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "demo.tkd"
        record(path)
        with contextlib.closing(sqlite3.connect(path)) as session:
            forget_the_machine(session)
            session.commit()
            # Without a log and unused pages: nobody writes into it any more.
            session.execute("PRAGMA journal_mode = DELETE")
            session.execute("VACUUM")
        packed = lzma.compress(path.read_bytes(), preset=9 | lzma.PRESET_EXTREME)
    FILE.write_bytes(packed)
    print(f"wrote {FILE.relative_to(ROOT)}, {len(packed):,} bytes")


if __name__ == "__main__":
    main()
