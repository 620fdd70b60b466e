"""`@jit` and the function it makes: parameters, source, dependencies."""
