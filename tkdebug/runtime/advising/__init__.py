"""Gathers the facts of a launch, from its interpreted run and its compiled kernel.

Judging it is `tkdebug.advice`'s.
"""
