"""Choosing parameters: `@autotune`, its configurations, `@heuristics`."""
