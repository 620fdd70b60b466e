"""The precision of kernels: every float of a launch also in fp64, and which lines lose what."""
