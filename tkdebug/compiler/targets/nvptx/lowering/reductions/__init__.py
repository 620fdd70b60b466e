"""Reductions and scans over registers, lanes and warps."""
