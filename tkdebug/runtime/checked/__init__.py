"""Checked launches of native kernels: which launches they are, and how their faults come back."""
