"""What ops compute of whole tiles, for all programs of a batch at once."""
