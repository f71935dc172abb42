"""Programs that count their steps in variables: a step adds one to all of them, or fails.

Each goes through other parts of the runtime: groups of replicas with a shared update in place,
replicas for themselves with collectives, host calls, channels, infeed and outfeed, and one core.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import cancellation
from tensorflow.python.tpu.ops import tpu_ops

import tf_tpu_ext

# From 64 KB on variables are updated in place.
LARGE = 20_000
# How long a call of the host waits for a step to be cancelled.
HOLD_SECONDS = 0.5
CORE = "/device:TPU:0"
# The queues of a core are shared: one thread at a time may use this program.
FEEDS = "infeed and outfeed"

v1 = tf.compat.v1


@contextmanager
def managers_of_threads() -> Iterator[None]:
    """While it lasts, a cancellation manager is that of the calls of its thread.

    TensorFlow keeps one for all threads: a call can get the manager of another thread's.
    """
    of_thread = threading.local()

    class Context:
        def __init__(self, manager: cancellation.CancellationManager) -> None:
            self._manager = manager

        def __enter__(self) -> None:
            of_thread.manager = self._manager

        def __exit__(self, *error: object) -> None:
            of_thread.manager = None

    def current() -> cancellation.CancellationManager | None:
        return getattr(of_thread, "manager", None)

    with (
        mock.patch.object(cancellation, "CancellationManagerContext", Context),
        mock.patch.object(cancellation, "context", current),
    ):
        yield


def make_strategy() -> Any:
    """Returns a strategy of all cores, on a new TPU system."""
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.tpu.experimental.initialize_tpu_system(resolver)
    return tf.distribute.TPUStrategy(resolver)


class Variables:
    """A mirrored scalar, a mirrored array, and a scalar for each replica, counting the same."""

    def __init__(self, strategy: Any) -> None:
        self._strategy = strategy
        with strategy.scope():
            self._mirrored = [tf.Variable(0.0), tf.Variable(tf.zeros([LARGE]))]
            self._own = tf.Variable(
                0.0,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
            )

    def add(self, mirrored: Any, own: Any) -> None:
        """Adds to them, in a replica; `mirrored` must be alike for all replicas."""
        for variable in self._mirrored:
            variable.assign_add(tf.broadcast_to(mirrored, variable.shape))
        self._own.assign_add(own)

    def count(self) -> int:
        """Returns what all of them have counted.

        Raises:
            AssertionError: They differ.
        """
        read = [
            np.asarray(value)
            for variable in (*self._mirrored, self._own)
            for value in self._strategy.experimental_local_results(variable)
        ]
        values = set(itertools.chain.from_iterable(np.unique(value).tolist() for value in read))
        assert len(values) == 1, f"the variables of the replicas have counted {sorted(values)}"
        return int(values.pop())


class Host:
    """Python functions that programs call."""

    def __init__(self) -> None:
        self._free = threading.Event()
        self._free.set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lets calls wait until the end of the context, or for HOLD_SECONDS."""
        self._free.clear()
        try:
            yield
        finally:
            self._free.set()

    def identity(self, x: Any) -> Any:
        self._free.wait(HOLD_SECONDS)
        return x

    def nothing(self, x: Any) -> None:
        pass


class Program:
    """A step and what it counts in."""

    cancellable = True
    # Whether all of a step, once it has counted, can only succeed.
    ends_with_its_count = True

    def __init__(
        self,
        name: str,
        step: Any,
        variables: Iterable[Any],
        host: Host | None = None,
    ) -> None:
        self.name = name
        self.host = host or Host()
        self._step = step
        self._variables = list(variables)

    def run(self, size: int = 1, manager: cancellation.CancellationManager | None = None) -> None:
        """Runs a step; another size is another program. Checks what the step returns."""
        concrete = self._step.get_concrete_function(tf.TensorSpec([size]))
        call = manager.get_cancelable_function(concrete) if manager else concrete
        for value in tf.nest.flatten(call(tf.ones([size]))):
            assert np.all(value.numpy() == size), f"{self.name} returned {value}, expected {size}"

    def drop_outfeed(self) -> None:
        """Nothing: it has none."""

    def count(self) -> int:
        """Returns the steps that its first variables have counted."""
        return int(self._variables[0].count())


def _sum(x: Any) -> Any:
    return tf.distribute.get_replica_context().all_reduce("SUM", x)


def _average(strategy: Any) -> Callable[[Any], Any]:
    """One, of ones in all replicas. A program that needs it must combine their values."""
    return lambda x: _sum(tf.reduce_max(x)) / strategy.num_replicas_in_sync


def _of_replicas(
    strategy: Any,
    replica: Callable[[Any], Any],
    **options: Any,
) -> Any:
    traced = tf_tpu_ext.Options(**options)

    def step(x: Any) -> Any:
        with traced:
            return strategy.experimental_local_results(strategy.run(replica, [x]))

    return tf.function(step)


def _training(strategy: Any, variables: list[Variables], **options: bool) -> Any:
    average = _average(strategy)

    def replica(x: Any) -> Any:
        one = average(x)
        for each in variables:
            each.add(one, tf.reduce_max(x))
        # Each replica has a result of its own.
        replica_id = tf.distribute.get_replica_context().replica_id_in_sync_group
        return tf.reduce_sum(x) + 0.0 * tf.cast(replica_id, tf.float32)

    return _of_replicas(strategy, replica, **options)


def _collectives(strategy: Any, variables: list[Variables]) -> Any:
    average = _average(strategy)

    def replica(x: Any) -> Any:
        one = average(x)
        for _ in range(2):
            # Each of the sums needs the one before.
            one = average(tf.sort(x * one))
        for each in variables:
            each.add(one, one)
        return tf.reduce_sum(x) * one

    return _of_replicas(strategy, replica, stack_replicas=False, share_updates=False)


def _host_calls(strategy: Any, variables: list[Variables], host: Host, fold: bool) -> Any:
    average = _average(strategy)
    outside = v1.tpu.outside_compilation

    def python(x: Any) -> Any:
        return tf.ensure_shape(tf.py_function(host.identity, [x], tf.float32), [])

    def replica(x: Any) -> Any:
        one = outside(python, average(x))
        if fold:
            # Else it would be an op of the function, which a cancellation finds after the program.
            outside(lambda value: tf.py_function(host.nothing, [value], []), one)
        one = average(outside(lambda value: value * 1.0, one))
        for each in variables:
            each.add(one, one)
        return tf.reduce_sum(x) * one

    return _of_replicas(strategy, replica, fold_host_calls=fold)


class _FeedingSession:
    """Infeed, a program and outfeed in one run of a session, counting in a variable of each core.

    The feeds of a program that failed are gone, so each step must take what it has fed itself.
    """

    name = FEEDS
    cancellable = False
    # The host takes the outfeed afterwards.
    ends_with_its_count = False

    def __init__(self, cores: int) -> None:
        graph = tf.Graph()
        with graph.as_default():
            self._value = v1.placeholder(tf.float32, [])
            self._counts = [_core_counter(core) for core in range(cores)]
            handles = [[count.handle] for count in self._counts]
            # Not the method itself, because TensorFlow counts `self` among its arguments.
            program = v1.tpu.replicate(lambda count: self._computation(count), handles)
            with tf.device("/device:CPU:0"):
                fed = [
                    tpu_ops.infeed_enqueue_tuple([self._value], [[]], device_ordinal=core)
                    for core in range(cores)
                ]
                taken = [
                    tpu_ops.outfeed_dequeue_tuple([tf.float32], [[]], device_ordinal=core)
                    for core in range(cores)
                ]
            self._fetches = [program, taken, fed]
            self._initialize_system = v1.tpu.initialize_system()
            self._session = v1.Session()
            self._session.run(v1.global_variables_initializer())
        self._steps = 0

    def _computation(self, count: Any) -> Any:
        [fed] = tpu_ops.infeed_dequeue_tuple([tf.float32], [[]])
        with tf.control_dependencies([tpu_ops.outfeed_enqueue_tuple([fed])]):
            one = v1.tpu.cross_replica_sum(fed) / v1.tpu.cross_replica_sum(fed)
        # On the replica's own core, the program itself updates the variable, even if an op that
        # follows it fails.
        with tf.control_dependencies([tf.raw_ops.AssignAddVariableOp(resource=count, value=one)]):
            return tf.identity(fed)

    def run(self, size: int = 1, manager: Any = None) -> None:
        assert manager is None
        # So that what an earlier step has left would be seen.
        self._steps += 1
        got, taken, _ = self._session.run(self._fetches, {self._value: self._steps})
        for what, values in (("results", got), ("outfeed", taken)):
            found = np.ravel(values).tolist()
            assert set(found) == {self._steps}, f"the {what} of step {self._steps} are {found}"

    def drop_outfeed(self) -> None:
        """Drops what a program that ended well has sent, and its step has not taken."""
        self._session.run(self._initialize_system)

    def count(self) -> int:
        counted = set(self._session.run(self._counts))
        assert len(counted) == 1, f"the variables of the cores have counted {sorted(counted)}"
        return int(counted.pop())


def _core_counter(core: int) -> Any:
    with tf.device(f"/device:TPU:{core}"):
        return v1.get_variable(
            f"count_{core}", [], initializer=v1.zeros_initializer(), use_resource=True
        )


class _CoreVariable:
    """An array on one core."""

    def __init__(self) -> None:
        with tf.device(CORE):
            self.variable = tf.Variable(tf.zeros([LARGE]))

    def count(self) -> int:
        values = np.unique(self.variable.numpy())
        assert len(values) == 1, f"the elements of a variable have counted {values}"
        return int(values[0])


def _one_core(variable: tf.Variable) -> Any:
    @tf.function(jit_compile=True)
    def add(x: Any) -> Any:
        variable.assign_add(tf.ones_like(variable) * x[0])
        return tf.reduce_sum(x)

    def step(x: Any) -> Any:
        with tf.device(CORE):
            return add(x)

    return tf.function(step)


ONE_CORE = "one core"
NAMES = (
    "groups of replicas",
    "replicas for themselves",
    "collectives",
    "host calls",
    "channels",
    FEEDS,
    ONE_CORE,
)


def make_program(strategy: Any, name: str, shared: Iterable[Variables] = ()) -> Any:
    """Makes a program with variables of its own, which also counts in the `shared` ones.

    The programs of infeed and outfeed, and of one core, leave the `shared` ones alone.
    """
    if name == FEEDS:
        return _FeedingSession(strategy.num_replicas_in_sync)
    if name == ONE_CORE:
        on_core = _CoreVariable()
        return Program(name, _one_core(on_core.variable), [on_core])
    variables = [Variables(strategy), *shared]
    host = Host()
    makers: dict[str, Callable[[], Any]] = {
        "groups of replicas": lambda: _training(strategy, variables),
        "replicas for themselves": lambda: _training(strategy, variables, stack_replicas=False),
        "collectives": lambda: _collectives(strategy, variables),
        "host calls": lambda: _host_calls(strategy, variables, host, fold=True),
        "channels": lambda: _host_calls(strategy, variables, host, fold=False),
    }
    return Program(name, makers[name](), variables, host)


class CancelLater:
    """Cancels steps after a while, on a thread of its own."""

    def __init__(self, seconds: float) -> None:
        self.manager = cancellation.CancellationManager()
        self._timer = threading.Timer(seconds, self.manager.start_cancel)

    def __enter__(self) -> cancellation.CancellationManager:
        self._timer.start()
        return self.manager

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
