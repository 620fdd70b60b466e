"""This process: its forks, imports, files and tracebacks."""
