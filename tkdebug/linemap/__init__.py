"""Lines to instructions and back: `.loc` in PTX, line tables in cubins. No compiler in here."""
