"""Adapters for Inductor, the compiler of `torch.compile`: its kernels, their lines, launches."""
