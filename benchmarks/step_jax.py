"""The programs of steps.py in JAX: one jitted step over a mesh of virtual CPU devices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from step_programs import ADAGRAD_EPSILON, ADAGRAD_START, Program


class JaxMath:
    """`step_programs.Math` in JAX."""

    matmul = staticmethod(jnp.matmul)
    einsum = staticmethod(jnp.einsum)
    mean = staticmethod(jnp.mean)
    reshape = staticmethod(jnp.reshape)
    relu = staticmethod(jax.nn.relu)
    tanh = staticmethod(jnp.tanh)
    sigmoid = staticmethod(jax.nn.sigmoid)
    softmax = staticmethod(jax.nn.softmax)
    rsqrt = staticmethod(jax.lax.rsqrt)
    square = staticmethod(jnp.square)

    @staticmethod
    def convolution(x: Any, kernel: Any) -> Any:
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=layout)

    @staticmethod
    def max_pool(x: Any) -> Any:
        window = (1, 2, 2, 1)
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")

    @staticmethod
    def rows(table: Any, ids: Any) -> Any:
        return jnp.take(table, ids, axis=0)

    @staticmethod
    def concat(xs: list[Any]) -> Any:
        return jnp.concatenate(xs, axis=-1)

    @staticmethod
    def split(x: Any, parts: int) -> list[Any]:
        return jnp.split(x, parts, axis=-1)

    @staticmethod
    def fold(cell: Callable[[Any, Any], Any], xs: Any, state: Any) -> Any:
        steps_first = jnp.swapaxes(xs, 0, 1)
        return jax.lax.scan(lambda state, x: (cell(state, x), None), state, steps_first)[0]

    @staticmethod
    def zeros_like_rows(x: Any, width: int) -> Any:
        return jnp.zeros((x.shape[0], width), x.dtype)

    @staticmethod
    def cross_entropy(logits: Any, labels: Any) -> Any:
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
        return -chosen[:, 0]


def make_step(program: Program, replicas: int) -> tuple[Callable[[], Any], Callable[[Any], float]]:
    """Returns a function that runs a step and returns its loss, and one that reads such a loss."""
    devices = jax.devices("cpu")
    if len(devices) != replicas:
        raise RuntimeError(f"JAX must have {replicas} devices. It has: {devices}")
    mesh = Mesh(np.array(devices), ("replica",))
    everywhere, split = PartitionSpec(), PartitionSpec("replica")
    weights = program.weights()
    state = {}
    if program.adagrad:
        state = {name: np.full_like(value, ADAGRAD_START) for name, value in weights.items()}
    model = jax.device_put((weights, state), NamedSharding(mesh, everywhere))
    data = jax.device_put(program.data(), NamedSharding(mesh, split))

    # The model is donated: the next step reuses its buffers.
    @functools.partial(jax.jit, donate_argnums=0)
    @functools.partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(everywhere, split),
        out_specs=(everywhere, everywhere),
        check_vma=False,
    )
    def step(model: Any, batch: Any) -> Any:
        weights, state = model

        def loss_of(weights: Any) -> Any:
            return jnp.sum(program.losses(JaxMath(), weights, batch)) / program.batch

        loss, gradients = jax.value_and_grad(loss_of)(weights)
        loss, gradients = jax.lax.psum((loss, gradients), "replica")
        if program.adagrad:
            state = jax.tree.map(lambda s, g: s + g * g, state, gradients)
            gradients = jax.tree.map(
                lambda s, g: g / (jnp.sqrt(s) + ADAGRAD_EPSILON), state, gradients
            )
        weights = jax.tree.map(lambda w, g: w - program.rate * g, weights, gradients)
        return (weights, state), loss

    def run() -> Any:
        nonlocal model
        model, loss = step(model, data)
        # With a second step in flight, the first may get no thread for its last device: XLA's
        # collectives then wait for each other until they abort the process.
        return loss.block_until_ready()

    return run, float
