"""Passes over Tile IR, one a file, and the pipeline that runs them.

A pass is a frozen dataclass whose fields are its options; it changes the module only through the
`Rewriter` it is given, so that every change is recorded.
"""
