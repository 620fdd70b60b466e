"""Texts of faults: what happened and what to change, from an op, its source and plain facts.

No tensor and no interpreter is needed: whichever check finds a fault brings the facts.
"""
