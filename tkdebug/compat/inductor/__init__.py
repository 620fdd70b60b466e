"""What Inductor, the compiler behind `torch.compile`, needs of tkdebug: kernels, lines, launches."""
