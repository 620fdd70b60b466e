"""Living with faults: comments that ignore them, a baseline that knows them, kernels left out."""
