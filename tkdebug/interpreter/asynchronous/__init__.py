"""Copies and dots that are started and waited for: cp.async, TMA, and asynchronous products."""
