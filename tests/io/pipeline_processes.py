"""What tests see of the processes of pipelines."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable


def processes_of(pid: int) -> list[int]:
    """Returns the processes that a process has started."""
    children = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            children += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue  # the thread has ended meanwhile
    return children


def forkservers_of(pid: int) -> list[int]:
    """Returns the processes of a program that have imported TensorFlow for pipelines."""
    found = []
    for child in processes_of(pid):
        try:
            command = pathlib.Path(f"/proc/{child}/cmdline").read_text()
        except OSError:
            continue  # ended meanwhile
        if "io/server" in command:
            found.append(child)
    return found


def servers_of(pid: int) -> list[int]:
    """Returns the processes of a program's pipelines."""
    found = []
    for forkserver in forkservers_of(pid):
        try:
            found += processes_of(forkserver)
        except OSError:
            continue  # ended meanwhile
    return found


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition does not come true"
        time.sleep(0.05)
