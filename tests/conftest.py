"""What all tests share: a process started in the background must not hand its signals on."""

import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "native"))
pytest_plugins = ["corpus_plugin"]

# A shell starts background jobs with SIGINT ignored, nohup with SIGHUP ignored; children inherit
# that, and the tests of Ctrl-C would wait in vain.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
