"""Sites: the ops of a kernel where its native code reports something, and the memory for that.

`checks` defines check sites and how a kernel carries their list; `watches` and `clocks` do so for
watched values and for readings of the clock. `table` says where the reports of one launch are, and
what is passed of the tensors that accesses are tested by. Ops become sites in
`passes.insert_checks`; the backend's lowering writes the tests. A kernel that is compiled without
checks has no trace of them.
"""
