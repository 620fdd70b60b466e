"""The commands: a file each, with the options and the run of the command whose name it has."""
