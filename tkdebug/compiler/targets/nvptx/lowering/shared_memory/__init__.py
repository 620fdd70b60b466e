"""Shared memory: buffers, exchanges between threads, and copies on their way to it."""
