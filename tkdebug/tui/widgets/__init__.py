"""Lists, tables, code and dialogs that the panes are made of."""
