"""What passes and lowering ask of the IR without changing it."""
