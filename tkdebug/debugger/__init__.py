"""A debugger of interpreted launches: stop anywhere, look at every program, go backwards.

The engine is headless. `Debugger` (`engine`) takes over launches, stops them and answers
questions; a `Front` is asked at each stop how to go on. Consoles, panes and protocols are fronts.
"""

from tkdebug.debugger.dap.listener import Listening, listen

__all__ = ["Listening", "listen"]
