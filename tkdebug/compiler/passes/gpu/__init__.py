"""Passes of GPU IR: from tiles to tiles with layouts, buffers and barriers."""
