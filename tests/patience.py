"""Waiting times of tests for what comes or ends by itself.

Only what hangs takes as long as that: a machine on which much else runs may need minutes to start a
Python that imports torch.
"""

LONGEST_WAIT_S = 600.0
