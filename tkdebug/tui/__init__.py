"""The terminal user interface: an app over a headless core.

Headless: `child` and `drain` (the script on a pty), `terminal` (its output), `follow` (what the
session says), `kernel_text` (which lines belong together). Widgets: `line_list` with `table` and
`code` over it, a module per pane, `dialogs`, and `app` that wires them. Threads post messages that
hold immutable snapshots; only handlers touch widgets.

Everything shown comes from scripts and session files and is untrusted: it reaches the screen as
`rich.text.Text` through `display.shown`, never as markup.
"""
