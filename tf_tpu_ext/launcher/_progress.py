"""The status line of `tf-tpu run --progress`: steps, speed, and what is being waited for."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import dataclasses
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from tf_tpu_ext import _native, _workers

# How often the line is written in place, on a terminal.
_REDRAW_SECONDS = 0.5
# The time over which the rate is averaged.
_RATE_SECONDS = 10.0
# Shorter waits are not reported.
_PATIENCE_SECONDS = 1.0
# After this time, a compilation draws its own line on a terminal (cc/base/slow_notice.h).
_NOTICE_SECONDS = 2.0
_ERASE = "\r\033[K"


@dataclasses.dataclass(frozen=True)
class Compiling:
    """A compilation in progress.

    Attributes:
        what: The program's name and size.
        seconds: How long it has been running.
    """

    what: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class Now:
    """What is happening at the moment.

    Attributes:
        steps: Number of launches that have ended.
        run_id: The oldest launch in progress; 0 for none.
        program: Its program.
        waits: Which of its cores wait for which; empty if they compute or call the host.
        compiling: What is being compiled.
    """

    steps: int
    run_id: int = 0
    program: str = ""
    waits: str = ""
    compiling: tuple[Compiling, ...] = ()


class Line:
    """Generates the status line from repeated snapshots of what is happening."""

    def __init__(self) -> None:
        """Begins without snapshots."""
        self._steps: collections.deque[tuple[float, int]] = collections.deque()
        # What the cores are doing, and since when.
        self._doing = (0, 0)
        self._since = 0.0

    def text(self, now: Now, seconds: float) -> str:
        """Returns the line.

        Args:
            now: What is happening.
            seconds: The time on any clock.
        """
        self._steps.append((seconds, now.steps))
        while len(self._steps) > 2 and self._steps[1][0] <= seconds - _RATE_SECONDS:
            self._steps.popleft()
        doing = (now.run_id, now.steps)
        if doing != self._doing or len(self._steps) == 1:
            self._doing, self._since = doing, seconds
        began, before = self._steps[0]
        rate = (now.steps - before) / (seconds - began) if seconds > began else 0.0
        parts = [f"tf-tpu: {now.steps} steps, {rate:.1f} steps/s", *self._parts(now, seconds)]
        return ", ".join(parts)

    def _parts(self, now: Now, seconds: float) -> Iterator[str]:
        for each in now.compiling:
            yield f"compiling {each.what} for {each.seconds:.0f} s"
        lasted = seconds - self._since
        if lasted < _PATIENCE_SECONDS:
            return
        if now.run_id:
            doing = f": {now.waits.rstrip('; .')}" if now.waits else " runs"
            yield f"{now.program}{doing}, for {lasted:.0f} s"
        elif not now.compiling:
            yield f"no program has run for {lasted:.0f} s: the script or its input is at work"


def of_process() -> Now:
    """Returns what is happening in this process."""
    return _now(
        json.loads(_native.text_of("TfTpuExt_Progress", ctypes.c_double(_PATIENCE_SECONDS)) or "{}")
    )


def of_workers(addresses: list[str]) -> Now:
    """Returns what is happening in the workers of a pod, which run each launch together.

    Raises:
        tf.errors.OpError: A worker is lost.
    """
    return together(
        [_now(_workers.describe_progress(address, _PATIENCE_SECONDS)) for address in addresses]
    )


def together(workers: Sequence[Now]) -> Now:
    """Combines what each worker is doing into what they are doing together."""
    # The worker that is furthest behind.
    behind = min((now for now in workers if now.run_id), key=lambda now: now.run_id, default=Now(0))
    waits = [
        f"worker {number}: {now.waits.rstrip('; .')}"
        for number, now in enumerate(workers)
        if now.waits
    ]
    compiling: dict[str, float] = {}
    for each in itertools.chain.from_iterable(now.compiling for now in workers):
        compiling[each.what] = max(each.seconds, compiling.get(each.what, 0.0))
    return Now(
        steps=max(now.steps for now in workers),
        run_id=behind.run_id,
        program=behind.program,
        waits="; ".join(waits),
        compiling=tuple(itertools.starmap(Compiling, compiling.items())),
    )


def _now(told: Mapping[str, Any]) -> Now:
    return Now(
        steps=told["ended"],
        run_id=told["run_id"],
        program=told["program"],
        waits=told["waits"],
        compiling=tuple(
            Compiling(each["what"], each["seconds"])
            for each in told["ongoing"]
            if each["doing"] == "compiling"
        ),
    )


@contextlib.contextmanager
def shown(stream: TextIO, ask: Callable[[], Now], line_seconds: float) -> Iterator[None]:
    """Writes what is happening to a stream from a thread while the body runs.

    Args:
        stream: The stream; on a terminal, the line is updated in place.
        ask: Returns what is happening. While it fails, nothing is written.
        line_seconds: The time between two lines where the stream is not a terminal.
    """
    ended = threading.Event()
    writer = threading.Thread(
        target=_write, args=(stream, ask, line_seconds, ended), name="tpu_progress", daemon=True
    )
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()


def _write(
    stream: TextIO, ask: Callable[[], Now], line_seconds: float, ended: threading.Event
) -> None:
    terminal = stream.isatty()
    line = Line()
    while not ended.wait(_REDRAW_SECONDS if terminal else line_seconds):
        now = _asked(ask)
        if now is None:
            continue
        text = line.text(now, time.monotonic())
        if not terminal:
            print(text, file=stream, flush=True)
        elif not _draws_itself(now):
            # A longer line would wrap and could not be overwritten. Some terminals have no size.
            columns = os.get_terminal_size(stream.fileno()).columns or len(text) + 1
            print(f"{_ERASE}{text[: columns - 1]}", end="", file=stream, flush=True)
    if terminal:
        print(_ERASE, end="", file=stream, flush=True)


def _asked(ask: Callable[[], Now]) -> Now | None:
    import tensorflow as tf

    try:
        return ask()
    except tf.errors.OpError:
        # The script notices the lost worker, too, and has more to say about it.
        return None


def _draws_itself(now: Now) -> bool:
    level: Any = os.environ.get("TF_CPP_MIN_LOG_LEVEL") or "0"
    slow = any(each.seconds >= _NOTICE_SECONDS for each in now.compiling)
    return slow and level == "0"
