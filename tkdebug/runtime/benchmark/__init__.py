"""Timing and comparing: what `triton.testing` offers."""
