"""The session file: its tables, its writer, and the connections of those that read it."""
