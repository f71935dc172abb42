"""Ctrl-C reaches all that listen, once, and who asked Python for it before."""

from __future__ import annotations

from typing import Any

CODE = """
import signal
import socket
import threading

from tf_tpu_ext import _interrupts

def interrupt():
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        return
    raise AssertionError("no KeyboardInterrupt")

mine, pythons = socket.socketpair()
pythons.setblocking(False)
mine.settimeout(30)
signal.set_wakeup_fd(pythons.fileno())
assert _interrupts.is_possible()

heard = []
first = _interrupts.Listener(lambda: heard.append("first"))
second = _interrupts.Listener(lambda: heard.append("second"))
interrupt()
second.stop()
assert heard == ["first", "second"], heard
assert mine.recv(8) == bytes([signal.SIGINT])

third = _interrupts.Listener(lambda: heard.append("third"))
interrupt()
third.stop()
first.stop()
assert heard == ["first", "second", "first", "third"], heard
assert mine.recv(8) == bytes([signal.SIGINT])

# Nothing stays.
assert signal.set_wakeup_fd(-1) == pythons.fileno()
assert not [t.name for t in threading.enumerate() if t.name == "InterruptListener"]

# One that another thread stops leaves the reader to the next.
listener = _interrupts.Listener(lambda: heard.append("fourth"))
thread = threading.Thread(target=listener.stop)
thread.start()
thread.join(30)
assert not thread.is_alive()
interrupt()
last = _interrupts.Listener(lambda: heard.append("fifth"))
interrupt()
last.stop()
assert heard[4:] == ["fifth"], heard
assert not [t.name for t in threading.enumerate() if t.name == "InterruptListener"]
print("as expected")
"""


def test_listeners_share_one_thread(run_python: Any) -> None:
    done = run_python(CODE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "as expected" in done.stdout
