"""Why an element is what it is: its lines, ops, loads and writers, by executing launches again."""
