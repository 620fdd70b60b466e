"""`pytest --also-native sm_80,sm_90a`: what any test interprets is compiled natively too.

`--check-gpu-ir` also runs each launch as the GPU passes left it and compares. No test fails for it:
what failed is listed at the end by cause, and fails the session. Needs no GPU.
"""

from __future__ import annotations

from pathlib import Path

import pytest

_KEY: pytest.StashKey[object] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("native", "native code for what tests interpret")
    group.addoption("--also-native", metavar="TARGETS", help="such as sm_80,sm_90a")
    group.addoption("--check-gpu-ir", action="store_true", help="run the GPU IR and compare")
    group.addoption("--native-report", type=Path, help="write a JSON line for each compile")


def pytest_configure(config: pytest.Config) -> None:
    targets = config.getoption("--also-native")
    if not targets or (hasattr(config, "workerinput") is False and _has_workers(config)):
        return
    # Imports torch and the compiler.
    from corpus import Corpus

    report = config.getoption("--native-report")
    corpus = Corpus(targets.split(","), config.getoption("--check-gpu-ir"), report)
    collecting = corpus.collecting()
    collecting.__enter__()
    config.add_cleanup(lambda: collecting.__exit__(None, None, None))
    config.stash[_KEY] = corpus


def _has_workers(config: pytest.Config) -> bool:
    return bool(getattr(config.option, "numprocesses", None))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    corpus = item.config.stash.get(_KEY, None)
    if corpus is not None:
        corpus.where = item.nodeid


def pytest_sessionfinish(session: pytest.Session) -> None:
    corpus = session.config.stash.get(_KEY, None)
    if corpus is not None and corpus.failures and session.exitstatus == 0:
        session.exitstatus = 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    corpus = terminalreporter.config.stash.get(_KEY, None)
    if corpus is None:
        return
    from corpus import failure_table

    terminalreporter.section("native compiles")
    terminalreporter.write_line(failure_table(corpus.rows))
