"""The terminal user interface: an app over a headless core.

Threads (`feed`) post messages that hold immutable snapshots; only handlers touch widgets. The core
needs no screen: `script/` (the script on a pty, what it prints), `session/` (what its session
says), `kernel/text.py` (which lines belong together). On the screen are `app`, the tabs, the status
line, and the panes: a folder each, or a file where one is enough.

Everything shown comes from scripts and session files and is untrusted: it reaches the screen as
`rich.text.Text` through `display.shown`, never as markup.
"""
