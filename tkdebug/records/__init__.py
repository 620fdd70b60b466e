"""Records of what happens in launches, and their receivers."""
