"""Global memory: loads, stores, atomics and tensor maps."""
