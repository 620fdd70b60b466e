"""Triton's tt dialect: the ops of Tile IR that MLIR has none for."""

from tkdebug.compiler.dialects.tt.computation import *  # noqa: F403
from tkdebug.compiler.dialects.tt.memory import *  # noqa: F403
from tkdebug.compiler.dialects.tt.program import *  # noqa: F403
from tkdebug.compiler.dialects.tt.tiles import *  # noqa: F403
