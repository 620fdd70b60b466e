"""Costs of a launch and remedies: facts, a model of time, and rules over both.

Responsible for judging facts; `runtime.advising` gathers them. Knows neither the compiler nor
torch, so that recorded facts can be judged anywhere.
"""
