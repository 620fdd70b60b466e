"""Profiling sessions of a script: launches under named scopes, summed up as trees or as traces."""
