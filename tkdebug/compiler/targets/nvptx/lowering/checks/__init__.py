"""Lowering of tests: of bounds, of what kernels load, and of symptoms of faults."""
