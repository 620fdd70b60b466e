"""`--check padding`: the effect of masked-off elements on stored results."""
