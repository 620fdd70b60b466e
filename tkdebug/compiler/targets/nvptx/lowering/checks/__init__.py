"""Lowering of tests: of bounds, of loaded pointers, and of symptoms of faults."""
