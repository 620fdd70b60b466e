"""Instrumentation of kernels by plugins: what they ask for, what is recorded, and what they say.

`plugin` has the classes that plugins use. `measuring` adds the recording of operands to kernels,
finds which threads hold which elements, and hands the records to plugins, by source line.
"""
