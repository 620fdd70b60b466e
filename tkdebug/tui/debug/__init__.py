"""The Debug pane: a console with pictures, of a script that is stopped in a kernel."""
