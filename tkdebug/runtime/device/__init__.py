"""What kernels run on: the active driver, the mode, and whether torch is there."""
