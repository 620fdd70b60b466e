"""A recorded run of a script: what is checked before it, kept of it, and said after it."""
