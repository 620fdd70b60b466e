"""Text and colours for a terminal."""
