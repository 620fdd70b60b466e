"""What a GPU reaches: kernels that ask one resource for all it has, and their times."""
