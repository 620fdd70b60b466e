"""The script that the TUI runs: its process on a pty, and its output."""
