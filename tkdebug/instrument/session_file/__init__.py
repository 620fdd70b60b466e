"""The session file: its tables, its writer, and the connections of its readers."""
