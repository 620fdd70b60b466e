"""Short scripts that show a fault or a mismatch again: written from a launch, and shrunk."""
