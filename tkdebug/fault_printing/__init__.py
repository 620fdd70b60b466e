"""Faults on stderr while a script runs: their text, their number, and the process that prints."""
