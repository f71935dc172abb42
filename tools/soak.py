"""Runs many steps, and checks their results and that memory stops growing.

    tools/soak --steps 100000 --cores 8
    tools/soak --program changes --steps 50000 --plot memory.png

The program "calls" calls the host from each replica, inside a loop and outside of it. One step in a
thousand fails on one replica, and one in a thousand is cancelled while the host waits. "changes"
has arguments of a new shape every ten steps, and creates and drops functions, sessions and
strategies. The tool checks the results, the number of host calls, that no step takes longer than a
minute, and that resident memory has stopped growing after the first tenth. The exit code is 1 if a
check fails.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import gc
import os
import pathlib
import random
import sys
import time
from collections.abc import Callable
from typing import Any

LONGEST_STEP_SECONDS = 60
# What the allocator may keep beyond the first tenth of the steps.
GROWTH_BYTES = 64 << 20
LOOP_CALLS = 2
# After how many steps each thing is created anew.
NEW_SHAPE = 10
NEW_COMPILED_FUNCTION = 25
NEW_SESSION = 50
NEW_FUNCTION = 100
NEW_STRATEGY = 500
MAX_PROGRAMS = 64
MEASURED_STEPS = 500


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Host:
    """The Python function that the clusters call."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def reset(self, cores: int) -> None:
        self.calls = [0] * cores

    def call(self, replica: Any, x: Any, bad: Any) -> Any:
        # The calls of a replica run one after another, so no two threads write the same count.
        self.calls[int(replica)] += 1
        if int(replica) == int(bad):
            raise ValueError("injected")
        return x + 1


class CallSteps:
    """Steps that call the host, and succeed, fail or are cancelled."""

    def __init__(self, cores: int) -> None:
        import tensorflow as tf

        import tf_tpu_ext

        self._tf = tf
        self._cores = cores
        self._host = Host()
        self._graph = tf.Graph()
        with self._graph.as_default():
            v1 = tf.compat.v1
            self._value = v1.placeholder(tf.float32, [])
            self._bad = v1.placeholder(tf.int32, [])
            queue = v1.FIFOQueue(4 * cores, [tf.float32], shapes=[[]])
            self._fill = queue.enqueue_many([[1.0] * cores])
            self._size = queue.size()

            def on_host(x: Any) -> Any:
                replica = tf_tpu_ext.tpu.replica_id()
                y = tf.py_function(self._host.call, [replica, x, self._bad], tf.float32)
                return tf.ensure_shape(y, [])

            def computation(x: Any, waits: bool) -> Any:
                outside = v1.tpu.outside_compilation
                x = outside(on_host, x * 2.0)
                if waits:
                    x += outside(lambda: tf.ensure_shape(queue.dequeue(), []))
                _, x = tf.while_loop(
                    lambda number, _: number < LOOP_CALLS,
                    lambda number, x: (number + 1, outside(on_host, x)),
                    [0, x],
                )
                return v1.tpu.cross_replica_sum(x)

            inputs = [[self._value]] * cores
            self._plain = v1.tpu.replicate(lambda x: computation(x, False), inputs)
            self._waiting = v1.tpu.replicate(lambda x: computation(x, True), inputs)
            self._session = v1.Session()
            self._session.run(v1.tpu.initialize_system())

    def succeed(self, value: float, *, waits: bool = False) -> None:
        self._host.reset(self._cores)
        extra = 0.0
        if waits:
            self._session.run(self._fill)
            extra = 1.0
        outputs = self._waiting if waits else self._plain
        got = self._session.run(outputs, {self._value: value, self._bad: -1})
        expected = self._cores * (2.0 * value + 1.0 + extra + LOOP_CALLS)
        assert all(replica[0] == expected for replica in got), f"{got}, expected {expected}"
        wanted = [1 + LOOP_CALLS] * self._cores
        assert self._host.calls == wanted, f"calls {self._host.calls}, expected {wanted}"

    def fail(self, value: float, bad: int) -> None:
        self._host.reset(self._cores)
        try:
            self._session.run(self._plain, {self._value: value, self._bad: bad})
        except self._tf.errors.OpError as error:
            message = str(error)
        else:
            raise AssertionError(f"the error of replica {bad} was lost")
        assert "injected" in message, message
        assert self._host.calls[bad] == 1, self._host.calls

    def cancel(self, value: float) -> None:
        self._host.reset(self._cores)
        options = self._tf.compat.v1.RunOptions(timeout_in_ms=random.randint(20, 200))
        try:
            self._session.run(self._waiting, {self._value: value, self._bad: -1}, options)
        except self._tf.errors.DeadlineExceededError:
            pass
        else:
            raise AssertionError("a step that waits for ever ended")
        assert max(self._host.calls) <= 1, self._host.calls

    def take(self, number: int) -> str:
        """Takes the step with a number; returns its outcome."""
        value = float(number % 100)
        kind = random.randrange(1000)
        if kind == 0:
            self.fail(value, random.randrange(self._cores))
            return "failed"
        if kind == 1:
            self.cancel(value)
            return "cancelled"
        self.succeed(value, waits=kind < 20)
        return "right"


class ChangingSteps:
    """Steps whose shapes, functions, sessions and strategies change."""

    def __init__(self, cores: int) -> None:
        import tensorflow as tf

        import tf_tpu_ext

        tf_tpu_ext.configure(max_programs=MAX_PROGRAMS)
        self._tf = tf
        self._cores = cores
        self._strategy: Any = None
        self._weight: Any = None
        self._function: Any = None

    def take(self, number: int) -> str:
        """Takes the step with a number; returns what was created anew for it."""
        made = "the same"
        if number % NEW_STRATEGY == 0:
            made = "new strategy"
            self._make_strategy()
        if number % NEW_FUNCTION == 0:
            made = "new function"
            self._make_function()
            # Traced functions refer to themselves.
            gc.collect()
        elif number % NEW_SHAPE == 0:
            made = "new shape"
        self._run(1 + number // NEW_SHAPE)
        if number % NEW_SESSION == 0:
            self._run_session(number)
        if number % NEW_COMPILED_FUNCTION == 0:
            self._run_compiled_function(number)
        return made

    def _make_strategy(self) -> None:
        tf = self._tf
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        tf.tpu.experimental.initialize_tpu_system(resolver)
        self._strategy = tf.distribute.TPUStrategy(resolver)
        with self._strategy.scope():
            self._weight = tf.Variable(2.0)

    def _make_function(self) -> None:
        tf, strategy, weight = self._tf, self._strategy, self._weight

        def replica(x: Any) -> Any:
            # Not all_reduce: TensorFlow keeps each of its traces for the gradient.
            total = tf.compat.v1.tpu.cross_replica_sum(tf.reduce_sum(x * weight))
            weight.assign_add(0.0 * total)
            return total

        @tf.function(reduce_retracing=False)
        def step(x: Any) -> Any:
            return strategy.reduce("MEAN", strategy.run(replica, [x]), axis=None)

        self._function = step

    def _run(self, size: int) -> None:
        got = float(self._function(self._tf.ones([size])))
        expected = 2.0 * size * self._cores
        assert got == expected, f"{got}, expected {expected}"

    def _run_session(self, number: int) -> None:
        v1 = self._tf.compat.v1
        with self._tf.Graph().as_default(), v1.Session() as session:
            outputs = v1.tpu.replicate(
                lambda x: v1.tpu.cross_replica_sum(x + 1.0), [[float(number)]] * self._cores
            )
            for [got] in session.run(outputs):
                assert got == self._cores * (number + 1.0), got

    def _run_compiled_function(self, number: int) -> None:
        tf = self._tf

        @tf.function(jit_compile=True)
        def double(x: Any) -> Any:
            return 2.0 * x

        with tf.device("/device:TPU:0"):
            assert float(double(float(number))) == 2.0 * number


PROGRAMS: dict[str, Callable[[int], Any]] = {"calls": CallSteps, "changes": ChangingSteps}


def plot(path: pathlib.Path, steps: list[int], memory: list[int]) -> None:
    """Draws the resident memory after each number of steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4))
    axes = figure.subplots()
    axes.plot(steps, [size / (1 << 20) for size in memory])
    axes.set_xlabel("steps")
    axes.set_ylabel("resident memory, MB")
    axes.set_ylim(bottom=0)
    figure.tight_layout()
    figure.savefig(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--program", choices=sorted(PROGRAMS), default="calls")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--cores", type=int, default=8)
    parser.add_argument("--minutes", type=float, help="end after this many minutes at the latest")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=pathlib.Path, help="where to draw memory over steps, *.png")
    arguments = parser.parse_args()
    os.environ["TF_TPU_EXT_CORES"] = str(arguments.cores)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Programs are compiled, whatever ran before.
    os.environ["TF_TPU_EXT_COMPILATION_CACHE"] = ""
    random.seed(arguments.seed)
    steps = PROGRAMS[arguments.program](arguments.cores)
    counts: collections.Counter[str] = collections.Counter()
    measured: list[int] = []
    memory: list[int] = []
    start = time.monotonic()
    for number in range(arguments.steps):
        if arguments.minutes and time.monotonic() - start > 60 * arguments.minutes:
            break
        # Python can't end a step that hangs, so the process prints where it is, and exits.
        faulthandler.dump_traceback_later(LONGEST_STEP_SECONDS, exit=True)
        counts[steps.take(number)] += 1
        if number % MEASURED_STEPS == MEASURED_STEPS - 1:
            measured.append(number + 1)
            memory.append(resident_bytes())
            seconds = time.monotonic() - start
            told = f"{memory[-1] >> 20} MB, {dict(counts)}"
            print(f"{number + 1} steps, {seconds:.0f} s, {told}", flush=True)
    faulthandler.cancel_dump_traceback_later()
    if arguments.plot is not None:
        plot(arguments.plot, measured, memory)
    settled = memory[len(memory) // 10 :]
    if len(settled) > 1 and settled[-1] - settled[0] > GROWTH_BYTES:
        print(f"resident memory grew from {settled[0] >> 20} to {settled[-1] >> 20} MB")
        return 1
    print(f"passed: {dict(counts)} in {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
