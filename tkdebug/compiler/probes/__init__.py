"""Checks that native kernels carry: which ops are probed, and the memory that they report to.

`sites` says what a probe is and how a kernel carries its list, `table` where a launch's reports lie,
`bounds` what is legal of a tensor as passed. Ops become sites in `passes.insert_probes`; the tests
are written by the backend's lowering. A kernel that is compiled without probes has no trace of them.
"""
