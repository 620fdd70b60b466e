"""`tl.extra`: what is outside the core language."""
