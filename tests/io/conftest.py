"""Pipelines of files that the tests write, and what remains of their processes."""

from __future__ import annotations

import gc
import os
import pathlib
import textwrap
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tf_tpu_ext.io


@pytest.fixture
def pipeline(tmp_path: pathlib.Path, io_environment: pathlib.Path) -> Callable[..., Any]:
    """Makes a dataset by a function `make` of a file with the given code."""
    del io_environment

    def make(code: str, *args: Any, **kwargs: Any) -> Any:
        path = tmp_path / "pipeline.py"
        path.write_text("import tensorflow as tf\n" + textwrap.dedent(code))
        return tf_tpu_ext.io.dataset(f"{path}:make", *args, **kwargs)

    return make


def processes_of(pid: int) -> list[int]:
    """Returns the processes that a process has started."""
    children = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        children += [int(child) for child in (task / "children").read_text().split()]
    return children


def servers_of(pid: int) -> list[int]:
    """Returns the processes of pipelines that a process has started."""
    found = []
    for child in processes_of(pid):
        try:
            command = pathlib.Path(f"/proc/{child}/cmdline").read_text()
        except OSError:
            continue  # ended meanwhile
        if "io/server" in command:
            found.append(child)
    return found


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition does not come true"
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """After each test, its datasets are dropped and their processes have ended."""
    yield
    gc.collect()
    wait_until(lambda: (gc.collect(), not servers_of(os.getpid()))[1])
