"""The language: one file per family of functions of `tl`, which emit ops."""
