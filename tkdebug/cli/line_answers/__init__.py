"""Answers of `tkdebug lines`."""
