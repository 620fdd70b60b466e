"""Verdicts about kernels: right, wrong with the smallest example, or undecided and why."""
