"""Faults on stderr while a script runs: their text, how many, and by which process of a run."""
