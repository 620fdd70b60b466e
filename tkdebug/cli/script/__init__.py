"""The script of the user in this process: how it starts, and every way in which it ends."""
