"""The imports of a first launch: one thread makes them, and all first launches wait for it."""

import threading

from tkdebug.runtime.launch import first_launch


def test_plugin_that_launches_while_it_is_imported_does_not_wait_for_itself(monkeypatch):
    imports = first_launch._Imports()
    done = []
    monkeypatch.setattr(first_launch, "add_plugin_hooks", lambda: done.append(imports.wait()))
    waiting = threading.Thread(target=imports.wait, daemon=True)
    waiting.start()
    waiting.join(timeout=60)
    assert not waiting.is_alive()
    assert done == [None]
