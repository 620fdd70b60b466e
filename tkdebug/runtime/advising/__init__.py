"""Gathers the facts of a launch, from its interpreted run and its compiled kernel.

`tkdebug.advice` judges them.
"""
