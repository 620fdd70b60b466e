"""Timelines of warps: which source line a warp was at, by the clock of its multiprocessor."""
