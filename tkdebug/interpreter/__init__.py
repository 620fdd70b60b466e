"""The batched executor: Tile IR as torch ops, many programs at once, every access checked.

Launches begin in `launch`. Native runs use some of `memory` alone, so nothing is imported here.
"""
