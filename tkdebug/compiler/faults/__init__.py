"""How faults read: what happened and what to change, made from an op, its source and plain facts.

It needs no tensor and no interpreter: what finds a fault, on the CPU or on a GPU, brings the facts.
"""
