"""Runs many steps with host calls, failures and cancellations, and checks their results.

    tools/soak --steps 100000 --cores 8

Every step calls the host from each replica, in a loop and outside of it. One of a thousand fails on
one replica, one of a thousand is cancelled while the host waits. Checked are: the results, the
number of host calls, that no step takes longer than a minute, and that resident memory has stopped
growing after the first tenth. Ends with exit code 1 if a check fails.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import sys
import time
from typing import Any

LONGEST_STEP_SECONDS = 60
# What the allocator may keep beyond the first tenth of the steps.
GROWTH_BYTES = 64 << 20
LOOP_CALLS = 2


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


class Steps:
    """The program: steps that succeed, fail and are cancelled."""

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


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--cores", type=int, default=8)
    parser.add_argument("--minutes", type=float, help="end after this many minutes at the latest")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    os.environ["TF_TPU_EXT_CORES"] = str(arguments.cores)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    random.seed(arguments.seed)
    steps = Steps(arguments.cores)
    counts = {"right": 0, "failed": 0, "cancelled": 0}
    memory: list[int] = []
    start = time.monotonic()
    for number in range(arguments.steps):
        if arguments.minutes and time.monotonic() - start > 60 * arguments.minutes:
            break
        # Python can't end a step that hangs, so the process prints where it is, and exits.
        faulthandler.dump_traceback_later(LONGEST_STEP_SECONDS, exit=True)
        value = float(number % 100)
        kind = random.randrange(1000)
        if kind == 0:
            steps.fail(value, random.randrange(arguments.cores))
            counts["failed"] += 1
        elif kind == 1:
            steps.cancel(value)
            counts["cancelled"] += 1
        else:
            steps.succeed(value, waits=kind < 20)
            counts["right"] += 1
        if number % 500 == 499:
            memory.append(resident_bytes())
            seconds = time.monotonic() - start
            print(
                f"{number + 1} steps, {seconds:.0f} s, {memory[-1] >> 20} MB, {counts}", flush=True
            )
    faulthandler.cancel_dump_traceback_later()
    settled = memory[len(memory) // 10 :]
    if len(settled) > 1 and settled[-1] - settled[0] > GROWTH_BYTES:
        print(f"resident memory grew from {settled[0] >> 20} to {settled[-1] >> 20} MB")
        return 1
    print(f"passed: {counts} in {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
