"""Kills and stops workers of a pod at random moments, and checks that its program continues.

A program trains on the cores of several workers. Again and again, one of them is killed (SIGKILL)
or stopped (SIGSTOP). Each time, the program must get an UnavailableError that names it, in time;
then it is restarted, and so is the program, which restores its last checkpoint. In the end, its
weights must be bit for bit those of a program that was left alone.

    python tools/kill_workers.py [--kills 200] [--workers 2] [--cores 2] [--seed 0]

The exit code is 0 if all of this holds.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import queue
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import IO, Any

import numpy as np

CLI = pathlib.Path(__file__).resolve().parent.parent / "tf_tpu_ext" / "cli"
# How long a worker may give no sign of life, and how much longer an error may take.
LIMIT_SECONDS, GRACE_SECONDS = 4.0, 20.0
# The number of steps between checkpoints.
CHECKPOINT = 5


class Lines:
    """The lines of a stream, as they arrive."""

    def __init__(self, stream: IO[str]) -> None:
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put(line.strip())
        self._lines.put("END")

    def next(self, timeout: float | None = None) -> str:
        """Returns the next line, "END" after the last one; raises queue.Empty after the timeout."""
        return self._lines.get(timeout=timeout)

    def has(self, line: str) -> bool:
        """Returns whether the next line is this one, and if so, consumes it."""
        try:
            return self._lines.get_nowait() == line
        except queue.Empty:
            return False


def train(folder: str, master: str, steps: int) -> None:
    """Trains for the given number of steps, or, if that is 0, until "FINISH" arrives on stdin.

    It begins with the last checkpoint.
    """
    import tf_tpu_ext  # noqa: F401  isort: skip  (before TensorFlow makes its devices)

    import tensorflow as tf

    state = pathlib.Path(folder) / "state.npz"
    try:
        print("DONE", _train_connected(tf, master, state, steps, Lines(sys.stdin)), flush=True)
        code = 0
    except tf.errors.OpError as error:
        print("LOST", type(error).__name__, " ".join(str(error).split()), flush=True)
        code = 1
    # TensorFlow's own shutdown waits for the worker.
    os._exit(code)


def _train_connected(tf: Any, master: str, state: pathlib.Path, steps: int, said: Lines) -> int:
    from tensorflow.python.eager import context

    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(master)
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)
    rng = np.random.default_rng(0)
    inputs = tf.constant(rng.normal(size=(16, 8)).astype(np.float32))
    with strategy.scope():
        weights = tf.Variable(tf.zeros([8, 8]))

    @tf.function
    def step() -> None:
        def of_replica() -> None:
            here = tf.distribute.get_replica_context()
            number = tf.cast(here.replica_id_in_sync_group + 1, tf.float32)
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((tf.tanh(inputs @ weights) - inputs / number) ** 2)
            gradient = here.all_reduce("SUM", tape.gradient(loss, weights))
            weights.assign_sub(0.05 * gradient)

        strategy.run(of_replica)

    done = 0
    if state.exists():
        with np.load(state) as saved:
            done = int(saved["done"])
            weights.assign(saved["weights"])
    context.async_wait()
    print("RUNNING", flush=True)
    while True:
        step()
        done += 1
        if done % CHECKPOINT:
            continue
        values = [value.numpy() for value in weights.values]
        if any((value != values[0]).any() for value in values):
            print("WRONG the copies differ", flush=True)
            os._exit(1)
        new = state.with_name("new.npz")
        np.savez(new, done=done, weights=values[0])
        new.replace(state)
        if done == steps or (not steps and said.has("FINISH")):
            return done


class Worker:
    """A worker that is restarted on the same port."""

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self.port = 0
        self.start()

    def start(self) -> None:
        """Starts it and waits until it serves."""
        command = [sys.executable, str(CLI), "worker", f"--cores={self._cores}"]
        self.process = subprocess.Popen(
            [*command, f"--port={self.port}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "TF_TPU_EXT_HOST_LIMIT_SECONDS": str(LIMIT_SECONDS)},
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(r"grpc://localhost:(\d+)'\)", line):
                self.port = int(found[1])
                return
        raise RuntimeError("a worker does not start")

    def end(self) -> None:
        """Kills it."""
        self.process.kill()
        self.process.wait()


class Program:
    """The program, in a process, which is restarted after a loss."""

    def __init__(self, folder: str, master: str, steps: int = 0) -> None:
        self._command = [sys.executable, __file__, "--train", folder, master, str(steps)]
        self.start()

    def start(self) -> None:
        """Starts it, and waits until it trains."""
        self.process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "TF_TPU_EXT_HOST_LIMIT_SECONDS": str(LIMIT_SECONDS)},
        )
        assert self.process.stdout is not None
        self.lines = Lines(self.process.stdout)
        self.expect("RUNNING", 120)

    def tell(self, line: str) -> None:
        """Writes a line to it."""
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)

    def expect(self, word: str, timeout: float) -> str:
        """Returns the rest of the next line, which must begin with the word."""
        try:
            line = self.lines.next(timeout)
        except queue.Empty:
            raise RuntimeError(f"the program said nothing for {timeout:g} s, not {word}") from None
        if not line.startswith(word):
            raise RuntimeError(f"the program said {line!r}, not {word}")
        return line[len(word) :].strip()


def lose_one(workers: list[Worker], program: Program, rng: random.Random) -> tuple[str, float]:
    """Kills or stops a worker, and restarts both.

    Returns:
        What was done, and how many seconds later the program learned of it.
    """
    time.sleep(rng.uniform(0.0, 1.0))
    task = rng.randrange(len(workers))
    how = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP])
    start = time.monotonic()
    workers[task].process.send_signal(how)
    error = program.expect("LOST", LIMIT_SECONDS + GRACE_SECONDS)
    took = time.monotonic() - start
    if not error.startswith("UnavailableError"):
        raise RuntimeError(f"task {task} was lost by {how.name}, and the error is {error}")
    if f"task:{task} at localhost:{workers[task].port}" not in error:
        raise RuntimeError(f"task {task} was lost, and the error doesn't say so: {error}")
    workers[task].end()
    workers[task].start()
    program.process.wait(60)
    program.start()
    return how.name, took


def final_weights(folder: str) -> np.ndarray[Any, Any]:
    """Returns the weights of the last checkpoint."""
    with np.load(pathlib.Path(folder) / "state.npz") as saved:
        return np.array(saved["weights"])


def main() -> int:
    """Runs the campaign and returns the exit code."""
    if sys.argv[1:2] == ["--train"]:
        folder, master, last = sys.argv[2:]
        train(folder, master, int(last))
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    workers = [Worker(options.cores) for _ in range(options.workers)]
    master = ",".join(f"grpc://localhost:{worker.port}" for worker in workers)
    slowest: dict[str, float] = {}
    try:
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as alone:
            program = Program(folder, master)
            for number in range(options.kills):
                how, took = lose_one(workers, program, rng)
                slowest[how] = max(took, slowest.get(how, 0.0))
                print(f"{number + 1}: {how}, an error after {took:.1f} s", flush=True)
            program.tell("FINISH")
            steps = int(program.expect("DONE", 120))
            Program(alone, master, steps).expect("DONE", 600)
            equal = bool((final_weights(folder) == final_weights(alone)).all())
    finally:
        for worker in workers:
            worker.end()
    times = ", ".join(f"{how} at most {took:.1f} s" for how, took in sorted(slowest.items()))
    print(f"{options.kills} workers lost in {steps} steps; errors came after: {times}")
    print("The weights are those of a program left alone." if equal else "The weights differ.")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
