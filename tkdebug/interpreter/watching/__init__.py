"""Watched and printed values of kernels that run, as records and as lines of text."""
