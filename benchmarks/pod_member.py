"""One process of a peer of pods.py.

Reads one request per line (JSON) from standard input and answers each with a line on standard
output:

    {"do": "mlp", "count": 9}    runs steps of a row; answers the milliseconds and value of each

The first request of a row creates its variables. All processes of a peer get the same requests.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from step_programs import Arrays, programs

PEERS = ("ours", "multi_worker", "jax", "remote")
# Peers whose only process is the client of workers that it starts.
CLIENTS = ("ours", "remote")
# These two are programs from step_programs.py. The others are `replica_step`.
PROGRAMS = ("mlp", "transformer")
ROWS = ("empty", "all_reduce", *PROGRAMS, "gradients")
TENSORS = 8
RATE = 0.01

# Runs a step and reads its value.
Step = Callable[[], float]


def replica_step(
    row: str, x: Any, weights: list[Any], sums: Callable[[list[Any]], list[Any]]
) -> tuple[Any, list[Any]]:
    """Computes a replica's step, for arrays of TensorFlow and of JAX.

    Args:
        row: The row.
        x: The replica's part of `data`.
        weights: Those that `weights` made.
        sums: Sums each array over the replicas.

    Returns:
        The value of the step, and what to subtract from each of the weights.
    """
    if row == "empty":
        return x + 1.0, []
    if row == "all_reduce":
        return sums([x])[0], []
    gradients = sums([weight - x for weight in weights])
    return gradients[0][:1], [RATE * gradient for gradient in gradients]


def weights(row: str, smoke: bool) -> list[np.ndarray]:
    """Makes the weights of a row of `replica_step`."""
    if row != "gradients":
        return []
    size = (100_000 if smoke else 100_000_000) // TENSORS // 4
    random = np.random.default_rng(1)
    return [random.standard_normal(size, np.float32) for _ in range(TENSORS)]


def data(row: str, processes: int) -> Arrays:
    """Makes the global batch of a row of `replica_step`."""
    if row == "empty":
        return {"x": np.ones(processes, np.float32)}
    size = processes * (1024 if row == "all_reduce" else 1)
    return {"x": np.random.default_rng(2).standard_normal(size, np.float32)}


def tensorflow_step(
    row: str,
    smoke: bool,
    strategy: Any,
    distribute: Callable[[Arrays], Any],
    dense: bool,
) -> Step:
    """Makes a step that runs under a strategy.

    Args:
        row: The row.
        smoke: Whether sizes are tiny.
        strategy: The strategy.
        distribute: Makes the argument of `strategy.run` from a global batch.
        dense: See `step_tensorflow.make_replica_step`.
    """
    import step_tensorflow
    import tensorflow as tf

    if row in PROGRAMS:
        program = programs(smoke)[row]
        batch = distribute(program.data())
        replica = step_tensorflow.make_replica_step(program, strategy, dense)
    else:
        batch = distribute(data(row, strategy.num_replicas_in_sync))
        replica = tensorflow_replica(row, smoke, strategy)

    @tf.function
    def step() -> Any:
        values = strategy.run(replica, args=(batch,))
        if row in PROGRAMS:
            return strategy.reduce("SUM", values, axis=None)
        # Equal in all replicas.
        return strategy.experimental_local_results(values)[0]

    return lambda: float(np.mean(step().numpy()))


def tensorflow_replica(row: str, smoke: bool, strategy: Any) -> Callable[[Any], Any]:
    """Makes `replica_step` for a strategy."""
    import tensorflow as tf

    with strategy.scope():
        variables = [tf.Variable(value) for value in weights(row, smoke)]

    def apply(strategy: Any, changes: list[Any]) -> None:
        for variable, change in zip(variables, changes, strict=True):
            strategy.extended.update(
                variable, lambda v, c: v.assign_sub(c), args=(change,), group=False
            )

    def replica(batch: Any) -> Any:
        context = tf.distribute.get_replica_context()
        sums = functools.partial(context.all_reduce, "SUM")
        value, changes = replica_step(row, batch["x"], variables, sums)
        if changes:
            context.merge_call(apply, args=(changes,))
        return value

    return replica


def jax_step(row: str, smoke: bool) -> Step:
    """Makes a step over the devices of all processes."""
    import jax
    import step_jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    if row in PROGRAMS:
        run, read = step_jax.make_step(programs(smoke)[row], jax.device_count())
        return lambda: read(run())
    mesh = Mesh(np.array(jax.devices()), ("replica",))
    everywhere, split = PartitionSpec(), PartitionSpec("replica")
    model = jax.device_put(weights(row, smoke), NamedSharding(mesh, everywhere))
    batch = jax.device_put(data(row, jax.device_count())["x"], NamedSharding(mesh, split))

    # The model is donated: the next step reuses its buffers.
    @functools.partial(jax.jit, donate_argnums=0)
    @functools.partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(everywhere, split),
        out_specs=(everywhere, split),
        check_vma=False,
    )
    def step(model: Any, x: Any) -> Any:
        value, changes = replica_step(row, x, model, lambda xs: jax.lax.psum(xs, "replica"))
        return [weight - change for weight, change in zip(model, changes, strict=True)], value

    def run_and_read() -> float:
        nonlocal model
        model, value = step(model, batch)
        return float(np.mean(value.addressable_shards[0].data))

    return run_and_read


@contextlib.contextmanager
def connected_workers(count: int) -> Iterator[Any]:
    """Runs workers with one core each, makes this process their client, and gives the resolver."""
    # Before TensorFlow makes its devices.
    from tf_tpu_ext.cli import worker  # isort: skip

    import tensorflow as tf

    with worker.pod(count, cores=1) as addresses:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(addresses())
        tf.config.experimental_connect_to_cluster(resolver)
        yield resolver


@contextlib.contextmanager
def ours(processes: int, smoke: bool) -> Iterator[Callable[[str], Step]]:
    """Runs workers, and steps under a TPUStrategy on them."""
    with connected_workers(processes) as resolver:
        import step_tensorflow
        import tensorflow as tf

        tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)
        distribute = functools.partial(step_tensorflow.distribute, strategy)
        # A TPU sums dense gradients: XLA can't know how many distinct rows there are.
        yield lambda row: tensorflow_step(row, smoke, strategy, distribute, dense=True)


@contextlib.contextmanager
def remote(processes: int) -> Iterator[Callable[[str], Step]]:
    """Runs the same workers, but uses only their CPUs, as TensorFlow does without a strategy."""
    with connected_workers(processes):
        import tensorflow as tf

        devices = [
            device.name
            for device in tf.config.list_logical_devices("CPU")
            if "/task:" in device.name  # not the client's own
        ]
        assert len(devices) == processes, devices
        yield lambda row: remote_step(row, devices)


def remote_step(row: str, devices: list[str]) -> Step:
    """Makes the step of the row `empty` with a part on each device."""
    import tensorflow as tf

    parts = []
    for device, value in zip(devices, data(row, len(devices))["x"], strict=True):
        with tf.device(device):
            # Assigning it keeps the part in the function.
            parts.append((tf.constant(value), tf.Variable(0.0)))

    @tf.function
    def step() -> Any:
        values = []
        for device, (x, variable) in zip(devices, parts, strict=True):
            with tf.device(device):
                values.append(replica_step(row, x, [], list)[0])
                variable.assign(values[-1])
        return values[0]

    return lambda: float(step().numpy())


def multi_worker(rank: int, ports: list[int], smoke: bool) -> Callable[[str], Step]:
    """Makes this process a MultiWorkerMirroredStrategy worker."""
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    task = {"type": "worker", "index": rank}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
    import tensorflow as tf

    experimental = tf.distribute.experimental
    strategy = tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=experimental.CommunicationOptions(
            implementation=experimental.CommunicationImplementation.RING
        )
    )

    def distribute(batch: Arrays) -> Any:
        parts = {name: np.split(value, len(ports))[rank] for name, value in batch.items()}
        return {name: tf.constant(part) for name, part in parts.items()}

    return lambda row: tensorflow_step(row, smoke, strategy, distribute, dense=False)


def jax_process(rank: int, ports: list[int], smoke: bool) -> Callable[[str], Step]:
    """Makes this process one of JAX's."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_num_cpu_devices", 1)
    jax.distributed.initialize(f"localhost:{ports[0]}", len(ports), rank)
    return lambda row: jax_step(row, smoke)


def answers_of(make_step: Callable[[str], Step]) -> Iterator[dict[str, Any]]:
    """Yields the answers to the requests."""
    yield {"ready": True}
    row = ""
    step: Step = float
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] != row:
            step = float  # Frees the previous variables.
            row, step = request["do"], make_step(request["do"])
        milliseconds, values = [], []
        for _ in range(request["count"]):
            start = time.perf_counter()
            values.append(step())
            milliseconds.append((time.perf_counter() - start) * 1e3)
        yield {"ms": milliseconds, "values": values}


def serve(arguments: argparse.Namespace, answers: Any) -> None:
    peer, rank, ports, smoke = arguments.peer, arguments.rank, arguments.ports, arguments.smoke
    try:
        with contextlib.ExitStack() as stack:
            if peer == "ours":
                make_step = stack.enter_context(ours(len(ports), smoke))
            elif peer == "remote":
                make_step = stack.enter_context(remote(len(ports)))
            else:
                join = multi_worker if peer == "multi_worker" else jax_process
                make_step = join(rank, ports, smoke)
            for answer in answers_of(make_step):
                print(json.dumps(answer), file=answers, flush=True)
    except Exception as error:
        traceback.print_exc()
        message = f"{type(error).__name__}: {error}"[:2000]
        print(json.dumps({"error": message}), file=answers, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peer", choices=PEERS, required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ports", type=int, nargs="+", required=True, help="one for each replica")
    parser.add_argument("--smoke", action="store_true")
    # Library output must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    serve(parser.parse_args(), answers)
    # Some libraries' threads keep the process from ending promptly.
    os._exit(0)


if __name__ == "__main__":
    main()
