"""`--check uninitialised-read` and `--check unwritten-output`: memory as torch.empty made it."""
