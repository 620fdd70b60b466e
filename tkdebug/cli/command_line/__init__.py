"""The command line parsed: its commands and options, and mistakes in it."""
