"""Notes of launches by machine code, for whoever records them."""
