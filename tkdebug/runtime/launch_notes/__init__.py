"""Packs each recorded launch by machine code."""
