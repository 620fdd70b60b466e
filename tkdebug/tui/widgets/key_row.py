"""The keys that the widget in focus takes, in one row.

Textual's Footer is a widget for each key, and all of them are mounted again with each change of the
focus: a third of the time that the app took for a few keys. This is one widget.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from rich.text import Text
from textual import events
from textual.screen import Screen
from textual.widget import Widget

_SCROLLED_CELLS = 8


class _Key(NamedTuple):
    key: str
    name: str
    description: str
    is_enabled: bool
    is_pinned: bool


class KeyRow(Widget, can_focus=False):
    """Shows the keys; a click on one presses it, the wheel moves a row that is too long.

    The app's own keys, such as help and quit, stay in sight at the right.
    """

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {"key-row--key", "key-row--description"}
    DEFAULT_CSS = """
    KeyRow {
        dock: bottom;
        height: 1;
        text-wrap: nowrap;
        background: $footer-background;
        & > .key-row--key {
            color: $footer-key-foreground;
            background: $footer-key-background;
            text-style: bold;
        }
        & > .key-row--description {
            color: $footer-description-foreground;
            background: $footer-description-background;
        }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._keys: list[_Key] = []
        self._left_cells = 0

    def on_mount(self) -> None:
        """Begin to follow the focus."""
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def on_unmount(self) -> None:
        """End following."""
        self.screen.bindings_updated_signal.unsubscribe(self)

    def _changed(self, screen: Screen[object]) -> None:
        if screen.app.app_focus and self.is_attached and screen is self.screen:
            self.call_after_refresh(self._show_keys)

    def _show_keys(self) -> None:
        shown: dict[str, _Key] = {}
        for node, binding, is_enabled, _ in self.screen.active_bindings.values():
            if binding.show:
                name = self.app.get_key_display(binding)
                is_pinned = node is self.app
                key = _Key(binding.key, name, binding.description, is_enabled, is_pinned)
                shown.setdefault(binding.action, key)
        if self._keys != list(shown.values()):
            self._keys, self._left_cells = list(shown.values()), 0
            self.refresh()

    def _texts(self) -> list[tuple[_Key, Text]]:
        of_key = self.get_component_rich_style("key-row--key")
        of_description = self.get_component_rich_style("key-row--description")
        texts = []
        for key in self._keys:
            text = Text.assemble((f" {key.name} ", of_key), (f"{key.description} ", of_description))
            if not key.is_enabled:
                text.stylize("dim")
            texts.append((key, text))
        return texts

    def _parts(self) -> tuple[Text, Text]:
        """Return the keys that can be moved, and those that stay."""
        texts = self._texts()
        return (
            Text("").join(text for key, text in texts if not key.is_pinned),
            Text("").join(text for key, text in texts if key.is_pinned),
        )

    def render(self) -> Text:
        """The keys and their descriptions."""
        moving, pinned = self._parts()
        moving = moving[self._left_cells :]
        moving.truncate(max(0, self.size.width - pinned.cell_len), overflow="ellipsis")
        return moving + pinned

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Press the key under the mouse."""
        moving, pinned = self._parts()
        room = max(0, self.size.width - pinned.cell_len)
        pinned_begin = min(room, moving.cell_len - self._left_cells)
        is_pinned = event.x >= pinned_begin
        end = pinned_begin if is_pinned else -self._left_cells
        for key, text in self._texts():
            if key.is_pinned == is_pinned:
                end += text.cell_len
                if event.x < end:
                    self.app.simulate_key(key.key) if key.is_enabled else self.app.bell()
                    return

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Show keys further on."""
        self._scroll(_SCROLLED_CELLS)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Show keys further back."""
        self._scroll(-_SCROLLED_CELLS)

    def _scroll(self, cells: int) -> None:
        hidden = sum(part.cell_len for part in self._parts()) - self.size.width
        self._left_cells = max(0, min(self._left_cells + cells, hidden))
        self.refresh()
