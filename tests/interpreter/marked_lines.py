"""Lines of kernels that a comment marks, and the one fault that a test expects."""

import inspect
from types import ModuleType

from tkdebug.records.events import Fault


def line_of(module: ModuleType, marker: str) -> int:
    """The line of `module` that ends in `# marker`."""
    text = inspect.getsource(module).splitlines()
    found = [n for n, row in enumerate(text, 1) if row.endswith("# " + marker)]
    assert len(found) == 1, marker
    return found[0]


def only(faults: list[Fault]) -> Fault:
    """The one fault there is."""
    assert len(faults) == 1, faults
    return faults[0]
