"""What the tests of towers share: strategies of 1, 2 and 8 towers, and three ways to run code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_tpu_ext
from tf_tpu_ext.towers import _values

v1 = tf.compat.v1


# Every number of towers and every way to run, but not each with each.
LEFT_OUT = {("1_towers", "eager"), ("1_towers", "function"), ("2_towers", "session")}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what would repeat itself."""
    left_out = [
        item
        for item in items
        if "towers" in item.path.parts
        and any(f"[{a}-{b}" in item.name or f"[{b}-{a}" in item.name for a, b in LEFT_OUT)
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def resolver() -> Any:
    found = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.tpu.experimental.initialize_tpu_system(found)
    return found


@pytest.fixture(scope="session", params=[1, 2, 8], ids=lambda n: f"{n}_towers")
def strategy(request: pytest.FixtureRequest, resolver: Any) -> Any:
    """A strategy of as many towers as the parameter says."""
    return tf_tpu_ext.TPUStrategy(resolver, steps_per_run=2, num_cores=request.param)


@pytest.fixture(scope="session")
def two(resolver: Any) -> Any:
    """A strategy of two towers, for what does not depend on their number."""
    return tf_tpu_ext.TPUStrategy(resolver, steps_per_run=2, num_cores=2)


def _leaves(strategy: Any, structure: Any) -> list[Any]:
    return [x for leaf in tf.nest.flatten(structure) for x in strategy.unwrap(leaf)]


def _eagerly(strategy: Any, build: Callable[..., Any], make: Callable[[], list[Any]]) -> Any:
    with strategy.scope():
        return build(*make())


def _in_function(strategy: Any, build: Callable[..., Any], make: Callable[[], list[Any]]) -> Any:
    structure: list[Any] = []
    with strategy.scope():
        made = make()

    @tf.function
    def function() -> Any:
        with strategy.scope():
            outputs = build(*made)
        structure[:] = [outputs]
        return [x for x in _leaves(strategy, outputs) if tf.is_tensor(x)]

    tensors = iter(function())
    return _replaced(strategy, structure[0], lambda x: next(tensors) if tf.is_tensor(x) else x)


def _in_session(strategy: Any, build: Callable[..., Any], make: Callable[[], list[Any]]) -> Any:
    with tf.Graph().as_default(), v1.Session() as session, strategy.scope():
        outputs = build(*make())
        initialize = v1.global_variables_initializer()
        session.run(strategy.initialize())
        session.run(initialize)
        fetches = [
            x for x in _leaves(strategy, outputs) if tf.is_tensor(x) or isinstance(x, tf.Operation)
        ]
        values = iter(session.run(fetches))
        return _replaced(
            strategy,
            outputs,
            lambda x: next(values) if tf.is_tensor(x) or isinstance(x, tf.Operation) else x,
        )


def _replaced(strategy: Any, structure: Any, replace: Callable[[Any], Any]) -> Any:
    def leaf(value: Any) -> Any:
        return _values.PerDevice([replace(x) for x in strategy.unwrap(value)])

    return tf.nest.map_structure(leaf, structure)


@pytest.fixture(params=[_eagerly, _in_function, _in_session], ids=["eager", "function", "session"])
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Runs what a function builds in a strategy's scope, of the variables that another makes.

    Returns its outputs, where each leaf is the list of the towers' values as NumPy arrays.
    """

    def run(strategy: Any, build: Callable[..., Any], make: Callable[[], list[Any]] = list) -> Any:
        outputs = request.param(strategy, build, make)

        def leaf(value: Any) -> Any:
            listed = [np.asarray(x) if tf.is_tensor(x) else x for x in strategy.unwrap(value)]
            return _Listed(listed)

        listed = tf.nest.map_structure(leaf, outputs)
        return tf.nest.map_structure(lambda x: x.values, listed)

    return run


class _Listed:
    """A list that is a leaf."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values
