"""PTX of inline assembly, executed on tensors."""
