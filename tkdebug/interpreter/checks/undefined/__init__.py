"""Undefined values, offsets that wrap, and negative remainders that are used."""
