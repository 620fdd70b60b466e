"""An example of a plugin package for tkdebug: one module for each entry point."""
