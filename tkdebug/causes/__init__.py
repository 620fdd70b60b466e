"""From a comparison that failed to its cause: who wrote the tensor, and an edit that fixes it."""
