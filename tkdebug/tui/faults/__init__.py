"""The faults pane."""
