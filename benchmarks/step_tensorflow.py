"""The programs of steps.py in TensorFlow: under a strategy, and as a plain function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from step_programs import ADAGRAD_EPSILON, ADAGRAD_START, Program

Step = tuple[Callable[..., Any], Callable[[Any], float]]


class TensorFlowMath:
    """`step_programs.Math` in TensorFlow."""

    matmul = staticmethod(tf.matmul)
    einsum = staticmethod(tf.einsum)
    mean = staticmethod(tf.reduce_mean)
    reshape = staticmethod(tf.reshape)
    relu = staticmethod(tf.nn.relu)
    tanh = staticmethod(tf.tanh)
    sigmoid = staticmethod(tf.sigmoid)
    softmax = staticmethod(tf.nn.softmax)
    rsqrt = staticmethod(tf.math.rsqrt)
    square = staticmethod(tf.square)

    @staticmethod
    def convolution(x: Any, kernel: Any) -> Any:
        return tf.nn.conv2d(x, kernel, 1, "SAME")

    @staticmethod
    def max_pool(x: Any) -> Any:
        return tf.nn.max_pool2d(x, 2, 2, "VALID")

    @staticmethod
    def rows(table: Any, ids: Any) -> Any:
        return tf.nn.embedding_lookup(table, ids)

    @staticmethod
    def concat(xs: list[Any]) -> Any:
        return tf.concat(xs, axis=-1)

    @staticmethod
    def split(x: Any, parts: int) -> list[Any]:
        return tf.split(x, parts, axis=-1)

    @staticmethod
    def fold(cell: Callable[[Any, Any], Any], xs: Any, state: Any) -> Any:
        steps_first = tf.transpose(xs, [1, 0, 2])
        steps = steps_first.shape[0]

        def body(i: Any, state: Any) -> Any:
            return i + 1, cell(state, steps_first[i])

        # Keras' layers make the same kind of loop. XLA needs the bound for the gradient.
        return tf.while_loop(
            lambda i, _: i < steps, body, (tf.constant(0), state), maximum_iterations=steps
        )[1]

    @staticmethod
    def zeros_like_rows(x: Any, width: int) -> Any:
        return tf.zeros([x.shape[0], width], x.dtype)

    @staticmethod
    def cross_entropy(logits: Any, labels: Any) -> Any:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def _loss_and_gradients(
    program: Program, variables: dict[str, Any], batch: Any, dense: bool
) -> tuple[Any, list[Any]]:
    with tf.GradientTape() as tape:
        losses = program.losses(TensorFlowMath(), variables, batch)
        loss = tf.reduce_sum(losses) / program.batch
    gradients = tape.gradient(loss, list(variables.values()))
    if dense:
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
    return loss, gradients


def _update(program: Program) -> Callable[..., None]:
    """Returns the optimizer: a function that updates one variable by its gradient."""

    def sgd(variable: Any, gradient: Any) -> None:
        if isinstance(gradient, tf.IndexedSlices):
            slices = tf.IndexedSlices(-program.rate * gradient.values, gradient.indices)
            variable.scatter_add(slices)
        else:
            variable.assign_sub(program.rate * gradient)

    def adagrad(variable: Any, gradient: Any, state: Any) -> None:
        if isinstance(gradient, tf.IndexedSlices):
            # As in Keras: rows that occur more than once are summed first.
            ids, places = tf.unique(gradient.indices)
            rows = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(ids))
            state.scatter_add(tf.IndexedSlices(rows * rows, ids))
            change = rows / (tf.sqrt(tf.gather(state, ids)) + ADAGRAD_EPSILON)
            variable.scatter_add(tf.IndexedSlices(-program.rate * change, ids))
        else:
            state.assign_add(gradient * gradient)
            change = gradient / (tf.sqrt(state) + ADAGRAD_EPSILON)
            variable.assign_sub(program.rate * change)

    return adagrad if program.adagrad else sgd


def _variables(program: Program) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    """Makes the weights, and the optimizer's arguments in addition to each gradient."""
    variables = {name: tf.Variable(value, name=name) for name, value in program.weights().items()}
    if not program.adagrad:
        return variables, [() for _ in variables]
    return variables, [
        (tf.Variable(np.full(variable.shape, ADAGRAD_START, np.float32)),)
        for variable in variables.values()
    ]


def _read(loss: Any) -> float:
    return float(loss)


def make_plain_step(program: Program, jit_compile: bool) -> Step:
    """Returns a function that runs a step on one device, and one that reads its loss."""
    variables, states = _variables(program)
    update = _update(program)
    data = {name: tf.constant(value) for name, value in program.data().items()}

    @tf.function(jit_compile=jit_compile)
    def step() -> Any:
        # XLA can't know how many distinct rows there are.
        loss, gradients = _loss_and_gradients(program, variables, data, dense=jit_compile)
        for variable, gradient, state in zip(variables.values(), gradients, states, strict=True):
            update(variable, gradient, *state)
        return loss

    return step, _read


def distribute(strategy: tf.distribute.Strategy, data: dict[str, np.ndarray]) -> Any:
    """Splits a batch into a value for each replica, on the replica's device."""
    devices: Sequence[str] = strategy.extended.worker_devices
    replicas = strategy.num_replicas_in_sync

    def part(context: tf.distribute.ValueContext) -> Any:
        replica = context.replica_id_in_sync_group
        with tf.device(devices[replica]):
            return {
                name: tf.identity(tf.constant(np.split(value, replicas)[replica]))
                for name, value in data.items()
            }

    return strategy.experimental_distribute_values_from_function(part)


def make_step(
    program: Program, strategy: tf.distribute.Strategy, dense: bool, loop: bool = False
) -> Step:
    """Returns a function that runs a step under a strategy, and one that reads its loss.

    Args:
        program: What to compute.
        strategy: The strategy.
        dense: Whether gradients of tables are made dense before they are summed.
        loop: Whether the function takes a number of steps and runs them in a loop on the host.
    """
    data = distribute(strategy, program.data())
    replica_step = make_replica_step(program, strategy, dense)

    def step() -> Any:
        return strategy.reduce("SUM", strategy.run(replica_step, args=(data,)), axis=None)

    def steps(count: Any) -> Any:
        loss = tf.constant(0.0)
        for _ in tf.range(count):
            loss = step()
        return loss

    if loop:
        looping = tf.function(steps)
        return lambda count: looping(tf.constant(count)), _read
    return tf.function(step), _read


def make_replica_step(
    program: Program, strategy: tf.distribute.Strategy, dense: bool
) -> Callable[[Any], Any]:
    """Returns a function that runs a replica's step with its part of a batch."""
    with strategy.scope():
        variables, states = _variables(program)
    update = _update(program)

    def apply(strategy: tf.distribute.Strategy, gradients: list[Any]) -> None:
        for variable, gradient, state in zip(variables.values(), gradients, states, strict=True):
            strategy.extended.update(variable, update, args=(gradient, *state), group=False)

    def replica_step(batch: Any) -> Any:
        loss, gradients = _loss_and_gradients(program, variables, batch, dense)
        context = tf.distribute.get_replica_context()
        context.merge_call(apply, args=(context.all_reduce("SUM", gradients),))
        return loss

    return replica_step
