"""Analyses of the IR for passes and lowering; none changes it."""
