"""The hand-made launches of the instrument's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "instrument"))
