"""`--check padding`: what masked-off elements change of what is stored."""
