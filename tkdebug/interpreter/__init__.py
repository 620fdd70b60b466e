"""The batched executor: Tile IR as torch ops, many programs at once, every access checked."""

from tkdebug.interpreter.launch import run_module

__all__ = ["run_module"]
