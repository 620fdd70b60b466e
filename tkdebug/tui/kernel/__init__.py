"""The kernel pane."""
