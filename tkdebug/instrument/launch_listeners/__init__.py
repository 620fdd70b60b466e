"""Launches as profilers and tools other than ours see them."""
