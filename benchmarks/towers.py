"""What towers cost: a step with `call_for_each_tower` and `merge_call` versus `strategy.run`.

Both do the same work: a layer's forward and backward pass, the mean of the gradients over all
cores, and the update. One combines the gradients in a `merge_call`, the other with `all_reduce`.

    python benchmarks/towers.py [--cores 2 8] [--steps 200] [--width 256]

For each number of cores, prints the median time of a step both ways, and their ratio. `unwrap` is a
`merge_call` that lists the gradients of all towers instead of reducing them; `eager` is `towers`
without a `tf.function` around it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def measure(cores: int, steps: int, width: int) -> None:
    import tf_tpu_ext  # isort: skip  (before TensorFlow makes its devices)

    import tensorflow as tf

    tf_tpu_ext.configure(cores=cores)
    strategy = tf_tpu_ext.TPUStrategy(
        tf.distribute.cluster_resolver.TPUClusterResolver(), steps_per_run=1
    )
    strategy.initialize()
    mean = tf_tpu_ext.towers.VariableAggregation.MEAN
    with strategy.scope():
        weights = tf.Variable(tf.random.stateless_normal([width, width], [1, 2]) * 0.01)
    batch = tf.random.stateless_normal([64, width], [3, 4])

    def gradient(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.relu(x @ weights) ** 2)
        return tape.gradient(loss, weights)

    def with_run(x: tf.Tensor) -> None:
        def replica(x: tf.Tensor) -> None:
            context = tf.distribute.get_replica_context()
            reduced = context.all_reduce("MEAN", gradient(x))

            def update(strategy: object, reduced: tf.Tensor) -> None:
                strategy.extended.update(weights, lambda w, g: w.assign_sub(g), args=(reduced,))

            context.merge_call(update, args=(reduced,))

        strategy.run(replica, args=(x,))

    def with_towers(combine: Callable[..., tf.Tensor]) -> Callable[[tf.Tensor], None]:
        def merge_fn(distribution: object, gradient: object) -> None:
            reduced = combine(distribution, gradient)
            distribution.update(weights, lambda w, g: w.assign_sub(g), reduced)

        def tower(x: tf.Tensor) -> None:
            tf_tpu_ext.towers.get_tower_context().merge_call(merge_fn, gradient(x))

        def step(x: tf.Tensor) -> None:
            with strategy.scope():
                strategy.call_for_each_tower(tower, x)

        return step

    steppers = {
        "run": tf.function(with_run),
        "towers": tf.function(with_towers(lambda d, g: d.reduce(mean, g, destinations=weights))),
        "unwrap": tf.function(with_towers(lambda d, g: tf.add_n(d.unwrap(g)) / d.num_towers)),
        "eager": with_towers(lambda d, g: d.reduce(mean, g, destinations=weights)),
    }
    times: dict[str, list[float]] = {name: [] for name in steppers}
    for step in steppers.values():
        step(batch)
    # In turns, so that the machine's other load is the same for all.
    for _ in range(steps):
        for name, step in steppers.items():
            begin = time.perf_counter()
            step(batch)
            weights.read_value().numpy()
            times[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(each) * 1e3 for name, each in times.items()}
    ratio = medians["towers"] / medians["run"]
    listed = "  ".join(f"{name} {median:7.3f} ms" for name, median in medians.items())
    print(f"{cores:3} cores  {listed}  towers/run {ratio:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cores", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--width", type=int, default=256)
    arguments = parser.parse_args()
    if len(arguments.cores) == 1:
        measure(arguments.cores[0], arguments.steps, arguments.width)
        return
    for cores in arguments.cores:
        # The number of cores is fixed within a process.
        subprocess.run(
            [
                *(sys.executable, os.path.abspath(__file__), "--cores", str(cores)),
                *("--steps", str(arguments.steps), "--width", str(arguments.width)),
            ],
            check=True,
        )


if __name__ == "__main__":
    main()
