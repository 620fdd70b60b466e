"""Compiling a jit function for one specialisation: stages, options, hooks, stage files."""
