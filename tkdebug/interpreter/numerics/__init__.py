"""Numbers that torch does not compute as kernels need them: rounding modes, fp8, integer bits."""
