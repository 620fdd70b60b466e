"""Cubins read and mended: line tables, debug information, disassembly."""
