"""Checks that native kernels carry: which ops are probed, and the memory that they report to.

`sites` says what a probe is and how a kernel carries its list, `table` where the reports of one
launch lie, `bounds` what is legal of a tensor as passed. Ops become sites in
`passes.insert_probes`; the backend's lowering writes the tests. A kernel that is compiled without
probes has no trace of them.
"""
