"""`@jit` and the function it makes: parameters, source, what it depends on."""
