"""Workers for tests: processes of `tf-tpu worker`, and how programs begin that use them."""

from __future__ import annotations

import os
import re
import signal
import tempfile

import imported_processes

CORES = 2
HOSTS = 2
# A program that takes its TPU's address as an argument.
START = """
import os
import signal
import sys
import tensorflow as tf
import tf_tpu_ext

resolver = tf.distribute.cluster_resolver.TPUClusterResolver(sys.argv[1])
tf.config.experimental_connect_to_cluster(resolver)
topology = tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)
"""
# Each of its steps adds the number of cores to a variable; the first one has run.
COUNT = """
with strategy.scope():
    total = tf.Variable(0.0)

@tf.function
def step():
    def of_replica():
        here = tf.distribute.get_replica_context()
        total.assign_add(here.all_reduce("SUM", 1.0))
    strategy.run(of_replica)

step()
"""


class Worker:
    """A worker of `CORES` cores, in a process."""

    def __init__(self, *arguments: str) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (read at the end)
        reading, writing = os.pipe()
        self.process = imported_processes.start(
            [imported_processes.CLI, "worker", f"--cores={CORES}", "--port", "0", *arguments],
            stdout=writing,
            # Not a pipe: nobody reads it before the end.
            stderr=self._errors.fileno(),
        )
        os.close(writing)
        self._output = open(reading)  # noqa: SIM115 (open until the end)
        self.said = ""
        while "for programs:" not in self.said:
            line = self._output.readline()
            assert line, self._read_errors()
            self.said += line
        [port] = re.findall(r":(\d+)'\)", self.said)
        self.port = int(port)
        self.address = f"grpc://localhost:{self.port}"

    def end(self, how: signal.Signals = signal.SIGKILL) -> tuple[int, str]:
        """Ends it by a signal, and returns its exit code and what it has written as errors."""
        self.process.send_signal(how)
        code = self.process.wait(timeout=60)
        errors = self._read_errors()
        self._errors.close()
        self._output.close()
        return code, errors

    def _read_errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()


class Pod:
    """`HOSTS` workers, and the address of all."""

    def __init__(self) -> None:
        self.workers = [Worker() for _ in range(HOSTS)]
        self.address = ",".join(worker.address for worker in self.workers)

    def go_on(self) -> bool:
        """Lets stopped workers go on. Returns whether all workers still run."""
        for worker in self.workers:
            worker.process.send_signal(signal.SIGCONT)
        return all(worker.process.poll() is None for worker in self.workers)

    def end(self) -> None:
        for worker in self.workers:
            worker.end()
