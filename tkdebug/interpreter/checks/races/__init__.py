"""`--check race`: keeps what programs access, and compares it by the order of programs."""
