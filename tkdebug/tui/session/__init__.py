"""Contents of the recorded session, as the panes need them."""
