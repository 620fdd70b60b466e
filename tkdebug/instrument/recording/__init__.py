"""Recordings beside events: times on the GPU, stalls, clocks, ends of children."""
