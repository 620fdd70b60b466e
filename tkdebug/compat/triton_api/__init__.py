"""Functions of `triton` without a counterpart elsewhere in tkdebug."""
