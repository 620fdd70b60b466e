"""Recordings beside events: times on the GPU, stalls, clocks, output, ends of children."""
