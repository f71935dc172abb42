"""What training loops cost: Keras' fit and a loop on the host, compared with the bare step.

    pip install '.[cpu]' && pip install --no-deps 'tf_keras==2.21.*'  # the minor of TensorFlow
    python benchmarks/loops.py [--replicas 2 8] [--rounds 7] [--steps 128] [--json FILE]

All train the same model: the `mlp` of step_programs.py, 256 examples per step, under TPUStrategy.

* `host loop` runs its steps in one tf.function, `for _ in tf.range(count): strategy.run(...)`. Bare
  is the same step, called the same number of times.
* `keras` and `tf_keras` are `model.fit` with `steps_per_execution=32` on a dataset that repeats one
  batch, measured over an epoch without its beginning and end. Bare is that model's `train_step`
  under `strategy.run`, with the data on the cores.

Each has its own process, in which loop and bare step take turns. Prints medians and spreads (the
range of the middle half) of a step's milliseconds, and what the loop loses. `--smoke` is a short
run with tiny sizes that only shows that everything works.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import step_programs
import step_worker

LOOPS = ("host loop", "keras", "tf_keras")
PER_EXECUTION = 32
LIMIT_PERCENT = 5.0
PROCESS_LIMIT_SECONDS = 900.0

# Takes a number of steps and returns the seconds that they took.
Timed = Callable[[int], float]


def timed(run: Callable[[int], Any]) -> Timed:
    def measure(steps: int) -> float:
        start = time.perf_counter()
        float(run(steps))
        return time.perf_counter() - start

    return measure


def repeated(step: Callable[[], Any]) -> Timed:
    def run(steps: int) -> Any:
        for _ in range(steps):
            loss = step()
        return loss

    return timed(run)


def host_loop(program: step_programs.Program, strategy: Any) -> tuple[Timed, Timed]:
    import step_tensorflow

    step, _ = step_tensorflow.make_step(program, strategy, dense=True)
    loop, _ = step_tensorflow.make_step(program, strategy, dense=True, loop=True)
    return repeated(step), timed(loop)


def keras_fit(program: step_programs.Program, strategy: Any, keras: Any) -> tuple[Timed, Timed]:
    import step_tensorflow
    import tensorflow as tf

    data = program.data()
    width = program.weights()["w2"].shape[0]
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Dense(width, activation="relu"),
                keras.layers.Dense(width, activation="relu"),
                keras.layers.Dense(10),
            ]
        )
        model.build((None, data["x"].shape[1]))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(program.rate), loss, steps_per_execution=PER_EXECUTION)
    dataset = tf.data.Dataset.from_tensors((data["x"], data["y"])).repeat()

    class Epoch(keras.callbacks.Callback):
        seconds = 0.0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self._start = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            # Reading the loss waits for the steps.
            float(logs["loss"])
            Epoch.seconds = time.perf_counter() - self._start

    def fit(steps: int) -> float:
        # The second epoch: the first creates the iterator.
        model.fit(dataset, steps_per_epoch=steps, epochs=2, verbose=0, callbacks=[Epoch()])
        return Epoch.seconds

    batch = step_tensorflow.distribute(strategy, data)

    def replica_step(batch: Any) -> Any:
        return model.train_step((batch["x"], batch["y"]))["loss"]

    @tf.function
    def step() -> Any:
        losses = strategy.run(replica_step, args=(batch,))
        return strategy.experimental_local_results(losses)[0]

    fit(PER_EXECUTION)  # Creates the optimizer's variables.
    return repeated(step), fit


def work(loop: str, replicas: int, rounds: int, steps: int, smoke: bool) -> dict[str, Any]:
    """Measures one loop in this process."""
    if loop == "tf_keras":
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
    strategy = step_worker.make_strategy("ours", replicas)
    program = step_programs.programs(smoke)["mlp"]
    if loop == "host loop":
        bare, looped = host_loop(program, strategy)
    else:
        bare, looped = keras_fit(program, strategy, importlib.import_module(loop))
    for measure in (bare, looped):
        measure(steps)
    seconds: dict[str, list[float]] = {"bare": [], "loop": []}
    for _ in range(rounds):
        seconds["bare"].append(bare(steps))
        seconds["loop"].append(looped(steps))
    result: dict[str, Any] = {}
    for name, taken in seconds.items():
        ms = sorted(one / steps * 1e3 for one in taken)
        result[f"{name}_ms"] = statistics.median(ms)
        result[f"{name}_spread"] = ms[len(ms) * 3 // 4] - ms[len(ms) // 4]
    # Neighbors in time, so that a slow minute of the machine affects both.
    pairs = zip(seconds["bare"], seconds["loop"], strict=True)
    result["lost_percent"] = statistics.median((loop / bare - 1) * 100 for bare, loop in pairs)
    return result


def measure(loop: str, replicas: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measures one loop in its own process; returns the reason if that fails."""
    if loop != "host loop" and not importlib.util.find_spec(loop):
        return {"error": f"{loop} is not installed"}
    command = [sys.executable, __file__, "--worker", loop, "--replicas", str(replicas)]
    command += ["--rounds", str(arguments.rounds), "--steps", str(arguments.steps)]
    command += ["--smoke"] if arguments.smoke else []
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PROCESS_LIMIT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"longer than {PROCESS_LIMIT_SECONDS:g} s"}
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no output"]
        return {"error": f"code {done.returncode}: {lines[-1][:300]}"}
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--loops", nargs="+", choices=LOOPS, default=list(LOOPS), metavar="LOOP")
    parser.add_argument("--replicas", nargs="+", type=int, metavar="N")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--steps", type=int, help=f"of a round, a multiple of {PER_EXECUTION}")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--worker", choices=LOOPS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    smoke = arguments.smoke
    arguments.replicas = arguments.replicas or ([2] if smoke else [2, 8])
    arguments.rounds = arguments.rounds or (2 if smoke else 7)
    arguments.steps = arguments.steps or (PER_EXECUTION if smoke else 4 * PER_EXECUTION)
    if arguments.steps % PER_EXECUTION:
        parser.error(f"--steps must be a multiple of {PER_EXECUTION}")
    if arguments.worker:
        replicas = arguments.replicas[0]
        result = work(arguments.worker, replicas, arguments.rounds, arguments.steps, smoke)
        print(json.dumps(result), flush=True)
        return
    results = []
    titles = ("bare", "spread", "loop", "spread", "lost %")
    print(f"{'ms a step':20} " + " ".join(f"{title:>8}" for title in titles))
    for replicas in arguments.replicas:
        for loop in arguments.loops:
            result = {"loop": loop, "replicas": replicas, **measure(loop, replicas, arguments)}
            title = f"{loop}, n={replicas}"
            if "error" in result:
                print(f"{title:20} missing: {result['error']}", flush=True)
            else:
                result["met"] = result["lost_percent"] < LIMIT_PERCENT
                keys = ("bare_ms", "bare_spread", "loop_ms", "loop_spread", "lost_percent")
                met = "met" if result["met"] else "not met"
                numbers = " ".join(f"{result[key]:8.3f}" for key in keys)
                print(f"{title:20} {numbers}  {met}", flush=True)
            results.append(result)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
