"""The programs that steps.py times: weights, data and math, written once for TensorFlow and JAX.

A program's `losses` is written in terms of the few functions of `Math`, which step_tensorflow.py
and step_jax.py implement in each framework's own way, so all peers compute the same.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

Arrays = dict[str, np.ndarray]
Values = Mapping[str, Any]


class Math(Protocol):
    """What the programs need from a framework. Shapes are those of NumPy's namesakes."""

    def matmul(self, x: Any, y: Any) -> Any: ...
    def einsum(self, equation: str, x: Any, y: Any) -> Any: ...
    def convolution(self, x: Any, kernel: Any) -> Any: ...
    def max_pool(self, x: Any) -> Any: ...
    def rows(self, table: Any, ids: Any) -> Any: ...
    def mean(self, x: Any, axis: int, keepdims: bool = False) -> Any: ...
    def reshape(self, x: Any, shape: tuple[int, ...]) -> Any: ...
    def concat(self, xs: list[Any]) -> Any: ...
    def split(self, x: Any, parts: int) -> list[Any]: ...
    def relu(self, x: Any) -> Any: ...
    def tanh(self, x: Any) -> Any: ...
    def sigmoid(self, x: Any) -> Any: ...
    def softmax(self, x: Any) -> Any: ...
    def rsqrt(self, x: Any) -> Any: ...
    def square(self, x: Any) -> Any: ...
    def fold(self, cell: Callable[[Any, Any], Any], xs: Any, state: Any) -> Any: ...
    def zeros_like_rows(self, x: Any, width: int) -> Any: ...
    def cross_entropy(self, logits: Any, labels: Any) -> Any: ...


@dataclasses.dataclass(frozen=True)
class Program:
    """One training step.

    Attributes:
        name: What `--programs` calls it.
        batch: Number of examples in a step, over all replicas.
        make_weights: Makes the float32 weights that every peer starts with.
        make_data: Makes the batch; every array has `batch` rows.
        losses: Returns the loss of each example, from a `Math`, the weights and a part of the
            batch.
        flops: Floating-point operations of the matrix products and convolutions in a step, forward
            and backward; the rest is not counted.
        rate: The learning rate.
        adagrad: Whether the optimizer is Adagrad instead of SGD.
        tables: The weights of which a step needs only some rows, and the data that name the rows.
    """

    name: str
    batch: int
    make_weights: Callable[[np.random.Generator], Arrays]
    make_data: Callable[[np.random.Generator], Arrays]
    losses: Callable[[Any, Values, Values], Any]
    flops: float
    rate: float = 0.01
    adagrad: bool = False
    tables: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def weights(self) -> Arrays:
        return self.make_weights(np.random.default_rng(1))

    def data(self) -> Arrays:
        return self.make_data(np.random.default_rng(2))

    def least_bytes(self) -> int:
        """Bytes that a step must move, even if caches hold everything in between.

        The batch is read; the weights and the optimizer's state are read and written.
        """
        data = self.data()
        weights = 0
        for name, array in self.weights().items():
            if name in self.tables:
                weights += np.unique(data[self.tables[name]]).size * array[0].nbytes
            else:
                weights += array.nbytes
        state = weights if self.adagrad else 0
        return sum(array.nbytes for array in data.values()) + 2 * (weights + state)


# Adagrad's state before the first step, and what keeps it from dividing by zero.
ADAGRAD_START = 0.1
ADAGRAD_EPSILON = 1e-7


def programs(smoke: bool) -> dict[str, Program]:
    """Returns the programs by name, in tiny sizes if `smoke`."""
    if smoke:
        every = [
            empty(16),
            mlp(16, 12, 8),
            convnet(4, 8, 4),
            lstm(8, 4, 6, 8),
            transformer(4, 8, 16, 2, 1, 50),
            embedding(16, 100, 8, 3),
        ]
    else:
        every = [
            empty(256),
            mlp(256, 784, 512),
            convnet(256, 28, 32),
            lstm(256, 28, 28, 128),
            transformer(64, 64, 128, 4, 2, 1000),
            embedding(256, 50_000, 32, 8),
        ]
    return {program.name: program for program in every}


def _normal(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Weights whose products preserve the magnitude of their input."""
    values = random.standard_normal(shape) / math.sqrt(math.prod(shape[:-1]) or 1)
    return values.astype(np.float32)


def _zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def _inputs(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def _labels(random: np.random.Generator, batch: int, classes: int = 10) -> np.ndarray:
    return random.integers(0, classes, batch).astype(np.int32)


def empty(batch: int) -> Program:
    def losses(m: Math, w: Values, batch: Values) -> Any:
        return m.square(batch["x"] - w["w"])

    return Program(
        "empty",
        batch,
        lambda random: {"w": np.float32(0.0).reshape(())},
        lambda random: {"x": _inputs(random, batch) + np.float32(1.0)},
        losses,
        flops=0.0,
    )


def mlp(batch: int, inputs: int, width: int) -> Program:
    def weights(random: np.random.Generator) -> Arrays:
        return {
            "w1": _normal(random, inputs, width),
            "b1": _zeros(width),
            "w2": _normal(random, width, width),
            "b2": _zeros(width),
            "w3": _normal(random, width, 10),
            "b3": _zeros(10),
        }

    def losses(m: Math, w: Values, batch: Values) -> Any:
        x = m.relu(m.matmul(batch["x"], w["w1"]) + w["b1"])
        x = m.relu(m.matmul(x, w["w2"]) + w["b2"])
        return m.cross_entropy(m.matmul(x, w["w3"]) + w["b3"], batch["y"])

    # The backward pass takes two products per layer, but the first needs no gradient of its input.
    flops = 2 * batch * (2 * inputs * width + 3 * width * width + 3 * width * 10)
    return Program(
        "mlp",
        batch,
        weights,
        lambda random: {"x": _inputs(random, batch, inputs), "y": _labels(random, batch)},
        losses,
        flops,
    )


def convnet(batch: int, size: int, channels: int) -> Program:
    flat = (size // 4) ** 2 * 2 * channels

    def weights(random: np.random.Generator) -> Arrays:
        return {
            "k1": _normal(random, 3, 3, 1, channels),
            "b1": _zeros(channels),
            "k2": _normal(random, 3, 3, channels, 2 * channels),
            "b2": _zeros(2 * channels),
            "w3": _normal(random, flat, 10),
            "b3": _zeros(10),
        }

    def losses(m: Math, w: Values, batch: Values) -> Any:
        x = m.max_pool(m.relu(m.convolution(batch["x"], w["k1"]) + w["b1"]))
        x = m.max_pool(m.relu(m.convolution(x, w["k2"]) + w["b2"]))
        return m.cross_entropy(m.matmul(m.reshape(x, (-1, flat)), w["w3"]) + w["b3"], batch["y"])

    first = size**2 * 9 * channels
    second = (size // 2) ** 2 * 9 * channels * 2 * channels
    return Program(
        "convnet",
        batch,
        weights,
        lambda random: {"x": _inputs(random, batch, size, size, 1), "y": _labels(random, batch)},
        losses,
        flops=2 * batch * (2 * first + 3 * second + 3 * flat * 10),
    )


def lstm(batch: int, steps: int, features: int, units: int) -> Program:
    def weights(random: np.random.Generator) -> Arrays:
        return {
            "input": _normal(random, features, 4 * units),
            "state": _normal(random, units, 4 * units),
            "bias": _zeros(4 * units),
            "w": _normal(random, units, 10),
            "b": _zeros(10),
        }

    def losses(m: Math, w: Values, batch: Values) -> Any:
        def cell(state: Any, x: Any) -> Any:
            hidden, carry = state
            gates = m.matmul(x, w["input"]) + m.matmul(hidden, w["state"]) + w["bias"]
            into, forget, new, out = m.split(gates, 4)
            carry = m.sigmoid(forget) * carry + m.sigmoid(into) * m.tanh(new)
            return m.sigmoid(out) * m.tanh(carry), carry

        start = m.zeros_like_rows(batch["x"], units)
        hidden, _ = m.fold(cell, batch["x"], (start, start))
        return m.cross_entropy(m.matmul(hidden, w["w"]) + w["b"], batch["y"])

    flops = 2 * batch * (steps * (2 * features + 3 * units) * 4 * units + 3 * units * 10)
    return Program(
        "lstm",
        batch,
        weights,
        lambda random: {"x": _inputs(random, batch, steps, features), "y": _labels(random, batch)},
        losses,
        flops,
    )


def transformer(
    batch: int, length: int, width: int, heads: int, layers: int, words: int
) -> Program:
    head = width // heads

    def weights(random: np.random.Generator) -> Arrays:
        every = {
            "words": _inputs(random, words, width),
            "places": _inputs(random, length, width),
            "w": _normal(random, width, 10),
            "b": _zeros(10),
        }
        for i in range(layers):
            for name in ("query", "key", "value", "output"):
                every[f"{name}{i}"] = _normal(random, width, width)
            every[f"up{i}"] = _normal(random, width, 4 * width)
            every[f"up_bias{i}"] = _zeros(4 * width)
            every[f"down{i}"] = _normal(random, 4 * width, width)
            every[f"down_bias{i}"] = _zeros(width)
            for name in ("attention", "dense"):
                every[f"{name}_scale{i}"] = np.ones(width, np.float32)
                every[f"{name}_shift{i}"] = _zeros(width)
        return every

    def losses(m: Math, w: Values, batch: Values) -> Any:
        def dense(x: Any, kernel: Any) -> Any:
            return m.einsum("bsi,io->bso", x, kernel)

        def normalized(x: Any, name: str, i: int) -> Any:
            x = x - m.mean(x, -1, keepdims=True)
            x = x * m.rsqrt(m.mean(m.square(x), -1, keepdims=True) + 1e-6)
            return x * w[f"{name}_scale{i}"] + w[f"{name}_shift{i}"]

        def split_heads(x: Any) -> Any:
            return m.reshape(x, (-1, length, heads, head))

        x = m.rows(w["words"], batch["x"]) + w["places"]
        for i in range(layers):
            inner = normalized(x, "attention", i)
            query, key, value = (
                split_heads(dense(inner, w[f"{name}{i}"])) for name in ("query", "key", "value")
            )
            scores = m.softmax(m.einsum("bqhd,bkhd->bhqk", query, key) * (1.0 / math.sqrt(head)))
            mixed = m.einsum("bhqk,bkhd->bqhd", scores, value)
            x = x + dense(m.reshape(mixed, (-1, length, width)), w[f"output{i}"])
            inner = normalized(x, "dense", i)
            inner = m.relu(dense(inner, w[f"up{i}"]) + w[f"up_bias{i}"])
            x = x + dense(inner, w[f"down{i}"]) + w[f"down_bias{i}"]
        return m.cross_entropy(m.matmul(m.mean(x, 1), w["w"]) + w["b"], batch["y"])

    one = length * 12 * width * width + 2 * length * length * width
    return Program(
        "transformer",
        batch,
        weights,
        lambda random: {
            "x": random.integers(0, words, (batch, length)).astype(np.int32),
            "y": _labels(random, batch),
        },
        losses,
        flops=2 * batch * 3 * (layers * one + width * 10),
        tables={"words": "x"},
    )


def embedding(batch: int, rows: int, width: int, bag: int) -> Program:
    tables = 2
    hidden = 4 * width

    def weights(random: np.random.Generator) -> Arrays:
        every = {f"table{i}": _inputs(random, rows, width) for i in range(tables)}
        return every | {
            "w1": _normal(random, tables * width, hidden),
            "b1": _zeros(hidden),
            "w2": _normal(random, hidden, 10),
            "b2": _zeros(10),
        }

    def data(random: np.random.Generator) -> Arrays:
        every = {
            f"ids{i}": random.integers(0, rows, (batch, bag)).astype(np.int32)
            for i in range(tables)
        }
        return every | {"y": _labels(random, batch)}

    def losses(m: Math, w: Values, batch: Values) -> Any:
        x = m.concat([m.mean(m.rows(w[f"table{i}"], batch[f"ids{i}"]), 1) for i in range(tables)])
        x = m.relu(m.matmul(x, w["w1"]) + w["b1"])
        return m.cross_entropy(m.matmul(x, w["w2"]) + w["b2"], batch["y"])

    return Program(
        "embedding",
        batch,
        weights,
        data,
        losses,
        flops=2 * batch * 3 * (tables * width * hidden + hidden * 10),
        adagrad=True,
        tables={f"table{i}": f"ids{i}" for i in range(tables)},
    )
