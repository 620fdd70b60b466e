"""Lowers GPU IR to LLVM IR: one file for each family of ops, tables of rules, `driver` on top."""
