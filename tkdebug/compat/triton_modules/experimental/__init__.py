"""`triton.experimental`."""
