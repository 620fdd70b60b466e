"""Instrumentation of kernels by plugins: what they ask for, what is recorded, and what they say.

`plugin` has the classes that plugins use, `captures` adds the recording of operands to kernels and
finds which threads hold which elements, `measuring` hands the records to plugins, by source line.
"""
