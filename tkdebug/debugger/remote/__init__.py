"""A console whose user is in another process, at the TUI's Debug pane.

A socket between the two carries lines of JSON: the user's input goes one way, answers and pictures
of stops come the other way. The pane holds no state but what it shows, and needs no torch.
"""
