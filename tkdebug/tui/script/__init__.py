"""The script that the TUI runs: its process on a pty, and what it prints."""
