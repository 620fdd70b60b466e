"""Memory as programs see it: buffers, pointers, descriptors, and accesses checked for bounds."""
