"""Checked native kernels: faults from what they reported; their checks, interpreted."""
