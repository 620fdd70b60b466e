"""Kernels on the GPU that crash, or do not end: found, and named by line."""
