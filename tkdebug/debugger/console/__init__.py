"""The console: a front with pdb's commands and habits, for a terminal, a file or a pipe."""
