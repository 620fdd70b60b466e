"""A class for each op: its name, its parts and its meaning. `tt.load` is `dialects.tt.Load`."""
