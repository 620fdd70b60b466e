"""Records of what happens in launches, and who receives them."""
