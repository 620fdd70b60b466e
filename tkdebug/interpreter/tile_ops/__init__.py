"""Ops on whole tiles, for all programs of a batch at once."""
