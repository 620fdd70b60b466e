"""How passes change modules: the rewriter that records it, and what builds, clones and matches."""
