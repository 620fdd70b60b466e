"""How the interpreter runs each op: one file for each family of ops, `table` on top."""
