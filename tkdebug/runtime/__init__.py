"""@jit, kernel[grid], specialisation, autotuning, compile cache, modes, drivers, benchmarks."""
