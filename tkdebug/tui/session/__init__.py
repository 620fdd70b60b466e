"""What the recorded session says, as the panes need it."""
