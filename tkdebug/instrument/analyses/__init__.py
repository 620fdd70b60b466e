"""Analyses of a recorded run: plain functions of a session, for every view of it."""
