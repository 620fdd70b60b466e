"""What is behind modules of `triton` that have no counterpart of their own in tkdebug."""
