"""An installed Triton, asked whether it compiles the kernels that tkdebug compiles."""
