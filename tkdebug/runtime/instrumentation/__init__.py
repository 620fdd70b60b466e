"""Instrumentation of kernels by plugins: what they ask for, what is recorded, and what they say.

`plugin` is what a plugin is made of, `captures` puts what records operands into kernels, `layouts`
says which threads hold what, `measuring` hands what was recorded to plugins, by source line.
"""
