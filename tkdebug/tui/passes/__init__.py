"""The passes pane."""
