"""Explanations of elements: their lines, ops, loads and writers, by executing launches again."""
