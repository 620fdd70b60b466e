"""The op table: one file per family of ops, and the language functions that emit them."""
