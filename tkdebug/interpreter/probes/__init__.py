"""Checked native kernels: faults from what they reported; their probes, interpreted."""
