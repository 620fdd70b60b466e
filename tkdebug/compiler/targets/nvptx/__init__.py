"""NVIDIA GPUs: GPU IR to LLVM IR, PTX and cubin."""
