"""The batched executor: Tile IR as torch ops, many programs at once, every access checked."""

from tkdebug.interpreter.launch import (
    look_at_empty_launch,
    run_debugged,
    run_module,
    stored_tensors,
)
from tkdebug.interpreter.observers import CompiledFacts

__all__ = ["CompiledFacts", "look_at_empty_launch", "run_debugged", "run_module", "stored_tensors"]
