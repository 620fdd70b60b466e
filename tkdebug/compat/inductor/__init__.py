"""What Inductor, the compiler behind `torch.compile`, needs: kernels, their lines, launches."""
