import sys
from pathlib import Path

import pytest
import torch

from tkdebug.compat import install
from tkdebug.records.hook_chain import HOOKS, Hook

sys.path.insert(0, str(Path(__file__).parent.parent / "interpreter"))


@pytest.fixture
def faults():
    """Mismatches of the launches of a test, which are interpreted."""
    found = []
    hook = Hook(fault=found.append)
    HOOKS.add(hook)
    torch.manual_seed(0)
    with install("interpret"):
        yield found
    HOOKS.remove(hook)
