"""Checked native kernels: faults made of their reports, and their checks when interpreted."""
