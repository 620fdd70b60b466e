"""What a kernel shows while it runs: watches and prints, as records and as lines of text."""
