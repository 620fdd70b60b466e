"""Keys that begin a typed text: the next key belongs to the text, however soon it comes.

Textual gives a key to the widget that has the focus when the key comes. A binding runs only after
its key has gone through that widget, and `focus` takes effect later still. Letters that are typed
meanwhile would be keys of the widget that had the focus before. Priority bindings run at once.
"""

from __future__ import annotations

from textual.binding import Binding
from textual.widget import Widget
from textual.widgets import Input

# The actions of such keys, in any pane.
_ACTIONS = frozenset(("find", "filter", "type"))


def typing_key(key: str, action: str, description: str, *, show: bool = True) -> Binding:
    """Return a binding after which keys go into a text, to which `action` moves them."""
    shown = {"colon": ":"}.get(key)
    return Binding(key, action, description, show=show, priority=True, key_display=shown)


def take_keys(widget: Widget) -> None:
    """Focus a widget at once."""
    # Without scrolling to it, which would lay out widgets that are still being mounted.
    widget.screen.set_focus(widget, scroll_visible=False)


def is_letter_of_text(action: str, focused: Widget | None) -> bool:
    """Whether the key of such an action is part of the text that is typed now."""
    return action in _ACTIONS and isinstance(focused, Input)
