"""The kernel compiler: Python AST -> Tile IR -> (GPU IR -> LLVM IR -> PTX -> cubin)."""
