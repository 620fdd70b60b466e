"""Compiled kernels and their launches, interpreted and native."""
