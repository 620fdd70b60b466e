"""Tiles in the interpreter: symbolic forms of integers and masks, and their algebra."""
