"""Random computations with clusters, and what plain TensorFlow makes of them.

A program is a list of statements over a few float variables. It is built twice from the same
description: as a TPU computation with `outside_compilation`, and plainly. The results and the log
of the host's calls must be the same.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from hypothesis import strategies

import tf_tpu_ext

VARIABLES = 3
# The values stay small integers: sums and texts of them are exact on either side.
_MODULUS = 97.0

Values = tuple[tf.Tensor, ...]
Outside = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Compute:
    """Variable `target` becomes a sum of two others, on the cores."""

    target: int
    left: int
    right: int


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Variable `target` becomes what the host makes of some variables.

    Attributes:
        kind: "text" goes through strings, "branch" and "loop" have control flow of their own,
            "function" calls a tf.function, "effect" is logged by a Python function and changes
            nothing, "logged" does both.
        number: Distinguishes the log's entries of different clusters.
    """

    kind: str
    target: int
    inputs: tuple[int, ...]
    number: int


@dataclasses.dataclass(frozen=True)
class Repeat:
    times: int
    body: tuple[Statement, ...]


@dataclasses.dataclass(frozen=True)
class Branch:
    """Depends on whether a variable is even."""

    variable: int
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]


Statement = Compute | Cluster | Repeat | Branch
Program = tuple[Statement, ...]

CLUSTER_KINDS = ("text", "branch", "loop", "function", "effect", "logged")


def programs(kinds: Sequence[str] = CLUSTER_KINDS) -> strategies.SearchStrategy[Program]:
    """Programs of up to 4 statements, with blocks of 2 nested up to 3 deep, and these clusters."""
    variable = strategies.integers(0, VARIABLES - 1)
    compute = strategies.builds(Compute, variable, variable, variable)
    cluster = strategies.builds(
        Cluster,
        strategies.sampled_from(kinds),
        variable,
        strategies.lists(variable, max_size=VARIABLES, unique=True).map(tuple),
        strategies.integers(0, 9),
    )
    statement: Any = strategies.one_of(compute, cluster)
    for _ in range(3):
        block = strategies.lists(statement, min_size=1, max_size=2).map(tuple)
        statement = strategies.one_of(
            compute,
            cluster,
            strategies.builds(Repeat, strategies.integers(0, 3), block),
            strategies.builds(Branch, variable, block, block),
        )
    return strategies.lists(statement, min_size=1, max_size=4).map(tuple)


class Log:
    """The host's calls, in their order, for each replica."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.calls: dict[int, list[tuple[int, float]]] = {}

    def call(self, replica: Any, number: Any, x: Any) -> Any:
        with self._lock:
            self.calls.setdefault(int(replica), []).append((int(number), float(x)))
        return x


class Builder:
    """Builds a program's ops."""

    def __init__(self, outside: Outside, replica: tf.Tensor, log: Log) -> None:
        self._outside = outside
        self._replica = replica
        self._log = log

    def block(self, statements: Sequence[Statement], values: Values) -> Values:
        for statement in statements:
            values = self._statement(statement, values)
        return values

    def _statement(self, statement: Statement, values: Values) -> Values:
        if isinstance(statement, Compute):
            total = values[statement.left] + values[statement.right] + 1.0
            return _replaced(values, statement.target, tf.math.floormod(total, _MODULUS))
        if isinstance(statement, Cluster):
            inputs = [values[number] for number in statement.inputs]
            result = self._outside(lambda *x: self._host(statement, x), *inputs)
            return values if result is None else _replaced(values, statement.target, result)
        if isinstance(statement, Repeat):
            _, *results = tf.while_loop(
                lambda number, *_: number < statement.times,
                lambda number, *values: (number + 1, *self.block(statement.body, values)),
                [0, *values],
            )
            return tuple(results)
        even = tf.equal(tf.math.floormod(values[statement.variable], 2.0), 0.0)
        return tuple(
            tf.cond(
                even,
                lambda: self.block(statement.then, values),
                lambda: self.block(statement.otherwise, values),
            )
        )

    def _host(self, cluster: Cluster, inputs: Sequence[tf.Tensor]) -> tf.Tensor | None:
        x = tf.add_n([tf.constant(float(cluster.number)), *inputs])
        x = tf.math.floormod(x, _MODULUS)
        if cluster.kind in ("effect", "logged"):
            logged = tf.py_function(self._log.call, [self._replica, cluster.number, x], tf.float32)
            return None if cluster.kind == "effect" else tf.ensure_shape(logged, [])
        if cluster.kind == "text":
            return _by_text(x)
        if cluster.kind == "function":
            return _by_function(x)
        if cluster.kind == "branch":
            return tf.cond(x > 40.0, lambda: _by_text(x), lambda: x + 1.0)
        return tf.while_loop(lambda y: y < 90.0, lambda y: [_by_text(y) + 7.0], [x])[0]


def _replaced(values: Values, target: int, value: tf.Tensor) -> Values:
    return (*values[:target], value, *values[target + 1 :])


def _by_text(x: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.strings.to_number(tf.strings.as_string(x, precision=0)), [])


_by_function = tf.function(_by_text)


def run_on_cores(strategy: Any, program: Program, seeds: Sequence[float]) -> Any:
    """Runs a program on all cores; returns the variables and the log of each replica."""
    log = Log()

    @tf.function(autograph=False)
    def step(starts: Any) -> Any:
        def computation(start: tf.Tensor) -> Values:
            outside = tf.compat.v1.tpu.outside_compilation
            builder = Builder(outside, tf_tpu_ext.tpu.replica_id(), log)
            return builder.block(program, _start(start))

        return strategy.run(computation, args=(starts,))

    starts = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(seeds[context.replica_id_in_sync_group])
    )
    outputs = [strategy.experimental_local_results(x) for x in step(starts)]
    results = [[float(x[replica]) for x in outputs] for replica in range(len(seeds))]
    return results, log.calls


def run_plainly(program: Program, seeds: Sequence[float]) -> Any:
    """Runs a program without TPUs; returns what `run_on_cores` returns."""
    log = Log()

    def step(replica: tf.Tensor, start: tf.Tensor) -> Values:
        builder = Builder(lambda f, *inputs: f(*inputs), replica, log)
        return builder.block(program, _start(start))

    results = [
        [float(x) for x in step(tf.constant(replica), tf.constant(start))]
        for replica, start in enumerate(seeds)
    ]
    return results, log.calls


def _start(start: tf.Tensor) -> Values:
    return tuple(start + float(number) for number in range(VARIABLES))


def check(strategy: Any, program: Program, seed: int, *, ordered: bool) -> None:
    """Raises AssertionError if the cores, with folded clusters or not, and plain TensorFlow differ.

    Args:
        strategy: The TPUStrategy.
        program: The program.
        seed: Of the replicas' first values.
        ordered: Whether the order of a replica's calls is compared, too, or only which they are.
    """
    count = strategy.num_replicas_in_sync
    seeds = np.random.default_rng(seed).integers(0, 50, count).astype(np.float32).tolist()
    expected, expected_calls = run_plainly(program, seeds)
    if not ordered:
        expected_calls = {replica: sorted(made) for replica, made in expected_calls.items()}
    for fold in (True, False):
        tf_tpu_ext.configure(fold_host_calls=fold)
        results, calls = run_on_cores(strategy, program, seeds)
        where = f"for {program}, {'folded' if fold else 'in the host graph'}"
        assert results == expected, f"got {results}, plain TensorFlow has {expected}, {where}"
        if not ordered:
            calls = {replica: sorted(made) for replica, made in calls.items()}
        assert calls == expected_calls, (
            f"the host was called with {calls}, by plain TensorFlow with {expected_calls}, {where}"
        )
