"""What checked kernels test as they run: bounds, what they load, and symptoms of faults."""
