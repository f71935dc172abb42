"""The campaign of tools/faults: threads that take steps, and what goes wrong on purpose."""

from __future__ import annotations

import collections
import faulthandler
import os
import random
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

import tf_tpu_ext
from faulting import programs
from tf_tpu_ext import _faults

# A step may wait for compilations of other threads.
HANG_SECONDS = 120
HANG_EXIT_CODE = 3
INJECTED = "A test has made this fail"
# Of the steps.
CANCELLED = 0.002
OTHER_SIZES = 0.003
# Sizes of the argument, each a program of its own; fewer programs are kept than that makes.
SIZES = range(2, 8)
MAX_PROGRAMS = 64
# How many others may reach a point before the one that fails: about as many as in one step.
REACHED_IN_A_STEP = 40
STALL_SECONDS = 0.25
CHECK_STEPS = 200
MEAN_SECONDS_BETWEEN_INTERRUPTS = 0.5


class WrongError(Exception):
    """A step failed for another reason than the campaign's."""


class Interrupts:
    """Sends the main thread SIGINT now and then, which interrupts it in steps only.

    Elsewhere the campaign's own accounts would be interrupted.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._in_step = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        before = signal.signal(signal.SIGINT, self._handle)
        self._thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._thread.join()
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def in_step(self) -> Iterator[None]:
        self._in_step = True
        try:
            yield
        finally:
            self._in_step = False

    def _handle(self, number: int, frame: Any) -> None:
        if not self._in_step:
            return
        self._in_step = False
        raise KeyboardInterrupt

    def _send(self) -> None:
        while not self._ended.wait(self._random.expovariate(1 / MEAN_SECONDS_BETWEEN_INTERRUPTS)):
            os.kill(os.getpid(), signal.SIGINT)


class Lane:
    """The steps of one thread, in programs of its own that also count in the shared variables."""

    def __init__(self, number: int, seed: int, faults: float, made: list[Any]) -> None:
        self._random = random.Random(f"{seed}:{number}")
        self._faults = faults
        self._programs = made
        self._expected = [0] * len(made)
        self.number = number
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.last_step = time.monotonic()
        self.doing = "start"

    def steps_counted(self, program: str) -> int:
        """How many steps the programs of this kind have counted."""
        return sum(
            expected
            for made, expected in zip(self._programs, self._expected, strict=True)
            if made.name == program
        )

    def run(self, steps: int, interrupts: Interrupts | None) -> None:
        for step in range(steps):
            chosen = self._random.randrange(len(self._programs))
            self.last_step = time.monotonic()
            self.outcomes[self._step(chosen, interrupts)] += 1
            if step % CHECK_STEPS == 0:
                self._check(chosen)
        for chosen in range(len(self._programs)):
            self._check(chosen)

    def _step(self, chosen: int, interrupts: Interrupts | None) -> str:
        program = self._programs[chosen]
        size = 1
        if self._random.random() < OTHER_SIZES:
            size = self._random.choice(SIZES)
        if self._random.random() < self._faults:
            point = self._random.choice(_faults.POINTS)
            if point == "compilation":
                # Not compiled before, or not kept.
                size = self._random.randrange(max(SIZES) + 1, 1_000_000)
            self._arm(point)
        cancels = program.cancellable and self._random.random() < CANCELLED
        self.doing = f"{program.name}, size {size}{', to be cancelled' if cancels else ''}"
        try:
            if cancels:
                self._run_and_cancel(program, size, interrupts)
            else:
                self._run(program, size, None, interrupts)
        except tf.errors.OpError as error:
            if not (INJECTED in str(error) or (cancels and _is_cancelled(error))):
                raise WrongError(self.doing) from error
            if program.ends_with_its_count:
                self._check(chosen)
            else:
                self._may_have_counted(chosen)
            return "cancelled" if _is_cancelled(error) else "failed"
        except (KeyboardInterrupt, RuntimeError) as error:
            # pybind11 tells so of an interrupt while it raises another error.
            if "KeyboardInterrupt" not in repr(error):
                raise
            self._may_have_counted(chosen)
            return "interrupted"
        self._expected[chosen] += 1
        return "succeeded"

    def _run_and_cancel(self, program: Any, size: int, interrupts: Interrupts | None) -> None:
        # At once, or while a core or the host is waited for.
        seconds = self._random.choice([0.0, 0.005, STALL_SECONDS])
        if seconds == STALL_SECONDS:
            self._arm(self._random.choice(_faults.POINTS), stall_seconds=2 * STALL_SECONDS)
        with (
            program.host.held(),
            programs.CancelLater(self._random.uniform(0, seconds)) as manager,
        ):
            self._run(program, size, manager, interrupts)

    def _arm(self, point: str, stall_seconds: float | None = None) -> None:
        if stall_seconds is None:
            stall_seconds = STALL_SECONDS if self._random.random() < 0.2 else 0.0
        _faults.arm(point, self._random.randrange(REACHED_IN_A_STEP), stall_seconds=stall_seconds)

    def _run(self, program: Any, size: int, manager: Any, interrupts: Interrupts | None) -> None:
        if interrupts is None:
            program.run(size, manager)
        else:
            with interrupts.in_step():
                program.run(size, manager)

    def _check(self, chosen: int) -> None:
        counted = self._programs[chosen].count()
        assert counted == self._expected[chosen], self._wrong(chosen, counted)

    def _may_have_counted(self, chosen: int) -> None:
        program = self._programs[chosen]
        counted = program.count()
        assert counted - self._expected[chosen] in (0, 1), self._wrong(chosen, counted)
        if counted > self._expected[chosen]:
            program.drop_outfeed()
        self._expected[chosen] = counted

    def _wrong(self, chosen: int, counted: int) -> str:
        return (
            f"{self.doing}: counted {counted} steps, {self._expected[chosen]} returned "
            f"({dict(self.outcomes)})"
        )


def _is_cancelled(error: tf.errors.OpError) -> bool:
    return isinstance(error, tf.errors.CancelledError)


def _watch(lanes: list[Lane], ended: threading.Event) -> None:
    """Ends the process if a lane's step hangs; nothing else can."""
    while not ended.wait(1):
        for lane in lanes:
            seconds = time.monotonic() - lane.last_step
            if lane.doing == "end" or seconds < HANG_SECONDS:
                continue
            print(f"thread {lane.number} hangs for {seconds:.0f} s: {lane.doing}", flush=True)
            faulthandler.dump_traceback(all_threads=True)
            os._exit(HANG_EXIT_CODE)


def _report(lanes: list[Lane], start: float) -> str:
    outcomes = sum((lane.outcomes for lane in lanes), collections.Counter())
    told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    return f"{time.monotonic() - start:.0f} s: {told or 'nothing yet'}"


def run(steps: int, seed: int, threads: int, faults: float) -> int:
    """Runs the campaign in this process; returns its exit code."""
    tf_tpu_ext.configure(wait_limit_seconds=HANG_SECONDS / 2, max_programs=MAX_PROGRAMS)
    strategy = programs.make_strategy()
    shared = programs.Variables(strategy)
    lanes = []
    for number in range(threads):
        names = [name for name in programs.NAMES if number == 0 or name != programs.FEEDS]
        made = [programs.make_program(strategy, name, [shared]) for name in names]
        lanes.append(Lane(number, seed, faults, made))
    ended = threading.Event()
    errors: list[str] = []
    start = time.monotonic()

    def take_steps(lane: Lane, interrupts: Interrupts | None = None) -> None:
        try:
            lane.run(steps // threads, interrupts)
        except BaseException:
            errors.append(f"thread {lane.number}: {traceback.format_exc()}")
        lane.doing = "end"

    def tell() -> None:
        while not ended.wait(30):
            print(_report(lanes, start), flush=True)

    watchers = [
        threading.Thread(target=target, daemon=True)
        for target in (lambda: _watch(lanes, ended), tell)
    ]
    for watcher in watchers:
        watcher.start()
    others = [threading.Thread(target=take_steps, args=[lane]) for lane in lanes[1:]]
    interrupts = Interrupts(seed)
    with programs.managers_of_threads():
        for other in others:
            other.start()
        with interrupts.running():
            take_steps(lanes[0], interrupts)
        for other in others:
            other.join()
    ended.set()
    # What a thread holds that is still there when Python ends is freed in its midst, which aborts.
    for watcher in watchers:
        watcher.join()
    _faults.disarm()
    if not errors:
        expected = sum(
            lane.steps_counted(name)
            for lane in lanes
            for name in programs.NAMES
            if name not in (programs.FEEDS, programs.ONE_CORE)
        )
        if (counted := shared.count()) != expected:
            errors.append(f"the shared variables counted {counted} steps, expected {expected}")
    for point, counts in _faults.counts().items():
        print(f"{counts['failed']:8} failed, {counts['stalled']:6} stalled at {point}")
    print(_report(lanes, start))
    for error in errors:
        print(error)
    print("wrong" if errors else "all counts are exact")
    return 1 if errors else 0
