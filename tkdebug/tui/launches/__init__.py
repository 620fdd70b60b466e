"""The launches pane."""
