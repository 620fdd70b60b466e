"""Checks of kernels while they run, one file or folder for each, each an observer."""
