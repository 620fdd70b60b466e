"""Cubins read and completed: line tables, debug information, disassembly."""
