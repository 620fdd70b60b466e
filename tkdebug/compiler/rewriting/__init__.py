"""Changes of modules by passes: the recording rewriter, builders, copies and patterns."""
