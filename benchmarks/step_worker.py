"""One peer of steps.py with one number of replicas, in its own process.

Reads one request per line (JSON) from standard input and answers each with a line on standard
output:

    {"do": "open", "program": "mlp"}     makes the model; answers how much memory was in use before
    {"do": "first"}                      runs the first step; answers its seconds
    {"do": "steps", "count": 4}          runs steps; answers the loss of each
    {"do": "settle", "seconds": 0.2}     answers how many steps a block of this duration has
    {"do": "block", "steps": 40}         answers the seconds of a block, whose last loss is read
    {"do": "memory"}                     answers the peaks
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

PEERS = ("ours", "mirrored", "jax", "plain", "jit_compile")
_MOST_STEPS = 1 << 20


def megabytes(name: str) -> float:
    """Reads a line of this process's status, `VmHWM` (the peak) or `VmRSS` (now)."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(name + ":"):
                return int(line.split()[1]) / 1024
    return float("nan")


def forget_peak() -> bool:
    """Resets the peak to what is in use now; returns False if the system won't."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as references:
            references.write("5")
    except OSError:
        return False
    return True


def set_up(peer: str, replicas: int) -> Callable[[Any], Any]:
    """Makes the peer's devices; returns a function that makes a program's step."""
    if peer == "jax":
        os.environ["JAX_PLATFORMS"] = "cpu"
        import jax

        jax.config.update("jax_num_cpu_devices", replicas)
        jax.devices()
        import step_jax

        return lambda program: step_jax.make_step(program, replicas)
    if peer in ("plain", "jit_compile"):
        import step_tensorflow
        import tensorflow as tf

        tf.config.list_logical_devices()
        return lambda program: step_tensorflow.make_plain_step(program, peer == "jit_compile")
    strategy = make_strategy(peer, replicas)
    import step_tensorflow

    if strategy.num_replicas_in_sync != replicas:
        raise RuntimeError(
            f"{strategy} must have {replicas} replicas. It has {strategy.num_replicas_in_sync}"
        )
    # A TPU sums dense gradients: XLA can't know how many distinct rows there are.
    return lambda program: step_tensorflow.make_step(program, strategy, dense=peer == "ours")


def make_strategy(peer: str, replicas: int) -> Any:
    """Makes `ours` or `mirrored`, in a process that has not used TensorFlow yet."""
    if peer == "ours":
        import tf_tpu_ext

        tf_tpu_ext.configure(cores=replicas)
    import tensorflow as tf

    if peer == "ours":
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    cpu = tf.config.list_physical_devices("CPU")[0]
    configuration = [tf.config.LogicalDeviceConfiguration() for _ in range(replicas)]
    tf.config.set_logical_device_configuration(cpu, configuration)
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


class Worker:
    """Answers the requests."""

    def __init__(self, peer: str, replicas: int, smoke: bool) -> None:
        import step_programs

        self._make_step = set_up(peer, replicas)
        self._programs = step_programs.programs(smoke)
        self._before = 0.0
        self._first_peak = 0.0
        self._step: Callable[[], Any] = lambda: None
        self._read: Callable[[Any], float] = float

    def open(self, program: str) -> dict[str, Any]:
        self._step = lambda: None  # Frees the previous model.
        forget_peak()
        self._before = megabytes("VmRSS")
        self._step, self._read = self._make_step(self._programs[program])
        return {"before_mb": self._before}

    def first(self) -> dict[str, Any]:
        start = time.perf_counter()
        loss = self._read(self._step())
        seconds = time.perf_counter() - start
        self._first_peak = megabytes("VmHWM")
        return {"seconds": seconds, "losses": [loss]}

    def steps(self, count: int) -> dict[str, Any]:
        return {"losses": [self._read(self._step()) for _ in range(count)]}

    def settle(self, seconds: float) -> dict[str, Any]:
        steps = 1
        self.block(1)
        while (taken := self.block(steps)["seconds"]) < seconds and steps < _MOST_STEPS:
            steps = max(steps + 1, min(int(1.1 * seconds / taken * steps) + 1, 16 * steps))
        return {"steps": steps, "running_peak": forget_peak()}

    def block(self, steps: int) -> dict[str, Any]:
        step = self._step
        start = time.perf_counter()
        for _ in range(steps):
            loss = step()
        self._read(loss)
        return {"seconds": time.perf_counter() - start}

    def memory(self) -> dict[str, Any]:
        running = megabytes("VmHWM")
        return {
            "peak_mb": max(self._first_peak, running),
            "added_mb": max(self._first_peak, running) - self._before,
            "running_mb": running - self._before,
        }


def serve(make_worker: Callable[..., Worker], arguments: argparse.Namespace, answers: Any) -> None:
    def answer(content: dict[str, Any]) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    try:
        worker = make_worker(arguments.peer, arguments.replicas, arguments.smoke)
        answer({"ready": True, "pid": os.getpid()})
        for line in sys.stdin:
            request = json.loads(line)
            answer(getattr(worker, request.pop("do"))(**request))
    except Exception as error:
        traceback.print_exc()
        answer({"error": f"{type(error).__name__}: {error}"[:2000]})


def main(make_worker: Callable[..., Worker] = Worker, peers: Sequence[str] = PEERS) -> None:
    """Lets a worker answer the requests on standard input."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peer", choices=peers, required=True)
    parser.add_argument("--replicas", type=int, required=True)
    parser.add_argument("--smoke", action="store_true")
    # Library output must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    serve(make_worker, parser.parse_args(), answers)
    # Some libraries' threads keep the process from ending promptly.
    answers.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
