"""`--check coverage`: elements of inputs that a launch leaves out, or reads twice."""
