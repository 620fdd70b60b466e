"""LLVM IR to PTX and cubin: workers, the tools that they call, and the cache of results."""
