"""A launch again, varied: after each pass, in another configuration, in another order."""
