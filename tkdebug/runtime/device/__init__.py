"""The device of kernels: the active driver, the mode, and whether torch is there."""
