"""An installed Triton, asked what its compiler makes of the kernels that tkdebug compiles."""
