"""`run_steps_on_dataset` and `MultiStepContext`: several steps in one call.

If all shapes are static, the loop is part of the computation on the cores. A loop on the host feeds
it: for each step it sends every core a flag that says whether there is a step, and the data.
Otherwise a loop on the host runs a computation for each step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_tpu_ext.towers import _loops, _state, _values, reduction
from tf_tpu_ext.towers._sources import Source
from tf_tpu_ext.towers.reduction import VariableAggregation
from tf_tpu_ext.tpu import _eager

_CONTEXT = "_tf_tpu_ext_steps"


@_state.transparent_methods
class MultiStepContext:
    """The context of `run_steps_on_dataset`: its function sets outputs, its caller reads them.

    Example:
        >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
        >>> def step_fn(context, x):
        ...     doubled = strategy.call_for_each_tower(lambda x: x * 2, x)
        ...     context.set_last_step_output("doubled", doubled)
        ...     context.set_last_step_output("total", doubled, "SUM")
        >>> with strategy.scope():
        ...     dataset = strategy.distribute_dataset(lambda: tf.data.Dataset.range(100))
        ...     iterator = dataset.make_one_shot_iterator()
        ...     outputs = strategy.run_steps_on_dataset(step_fn, iterator, 3).last_step_outputs
        >>> print([int(x) for x in strategy.unwrap(outputs["doubled"])])  # On two cores.
        [8, 10]
        >>> int(outputs["total"])
        18

    Attributes:
        run_op: The operation that runs all steps, or None in eager code, where they have run.
    """

    def __init__(self) -> None:
        """Creates a context without outputs."""
        self.run_op: tf.Operation | None = None
        self._outputs: dict[str, Any] = {}
        self._aggregations: dict[str, Any] = {}
        self._non_tensor_outputs: dict[str, Any] = {}

    @property
    def last_step_outputs(self) -> dict[str, Any]:
        """The outputs of the last step, by name.

        An output with an aggregation is one tensor. Without one, it is a per-device value.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> def step_fn(context, x):
            ...     context.set_last_step_output("sum", x, "SUM")
            >>> with strategy.scope():
            ...     dataset = strategy.distribute_dataset(lambda: tf.data.Dataset.range(4))
            ...     iterator = dataset.make_one_shot_iterator()
            ...     context = strategy.run_steps_on_dataset(step_fn, iterator, 2)
            >>> int(context.last_step_outputs["sum"])
            5
        """
        return self._outputs

    @property
    def non_tensor_outputs(self) -> dict[str, Any]:
        """The outputs set by `set_non_tensor_output`, by name.

        Example:
            >>> context = MultiStepContext()
            >>> with tf_tpu_ext.TPUStrategy(None, steps_per_run=1).scope():
            ...     context.set_non_tensor_output("note", "traced")
            >>> context.non_tensor_outputs
            {'note': 'traced'}
        """
        return self._non_tensor_outputs

    def set_last_step_output(
        self, name: str, output: Any, aggregation: Any = VariableAggregation.NONE
    ) -> None:
        """Sets an output whose value in the last step will be in `last_step_outputs`.

        Args:
            name: The key in `last_step_outputs`.
            output: A tensor or a structure of tensors; in the cross-tower context, of per-device
                values.
            aggregation: How to combine the towers' values. Must not be NONE inside a tower.

        Raises:
            ValueError: The aggregation is missing inside a tower, or invalid.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> def tower(context, x):
            ...     context.set_last_step_output("mean", tf.cast(x, tf.float32), "MEAN")
            >>> def step_fn(context, x):
            ...     strategy.call_for_each_tower(tower, context, x)
            >>> with strategy.scope():
            ...     dataset = strategy.distribute_dataset(lambda: tf.data.Dataset.range(4))
            ...     iterator = dataset.make_one_shot_iterator()
            ...     context = strategy.run_steps_on_dataset(step_fn, iterator, 2)
            >>> float(context.last_step_outputs["mean"])
            2.5
        """
        in_tower = tf.distribute.get_replica_context() is not None
        if getattr(aggregation, "name", aggregation) == "NONE":
            if in_tower:
                raise ValueError(
                    f"set_last_step_output got {name!r} in a tower without an aggregation, "
                    "expected VariableAggregation.SUM, MEAN or ONLY_FIRST_TOWER. To keep the "
                    "values of all towers, return the value and call this in the cross-tower "
                    "context."
                )
            self._aggregations[name] = VariableAggregation.NONE
        else:
            self._aggregations[name] = reduction.to_aggregation("set_last_step_output", aggregation)
        self._outputs[name] = _values.map_leaves(_values.in_tower, output)

    def set_non_tensor_output(self, name: str, output: Any) -> None:
        """Sets an output that is a Python object.

        Args:
            name: The key in `non_tensor_outputs`.
            output: The object. Inside a tower, it is put into a list, which has one entry because
                all towers share a trace.

        Example:
            >>> context = MultiStepContext()
            >>> with tf_tpu_ext.TPUStrategy(None, steps_per_run=1).scope():
            ...     context.set_non_tensor_output("layers", 3)
            >>> context.non_tensor_outputs["layers"]
            3
        """
        in_tower = tf.distribute.get_replica_context() is not None
        self._non_tensor_outputs[name] = [output] if in_tower else output


def run_steps_on_dataset(
    strategy: Any,
    fn: Callable[..., Any],
    iterator: Any,
    iterations: int,
    initial_loop_values: Any,
) -> MultiStepContext:
    """Runs the steps, or adds them to a graph; see `TPUStrategy.run_steps_on_dataset`."""
    if isinstance(iterations, int) and iterations < 1:
        raise ValueError(
            f"run_steps_on_dataset got iterations={iterations}, expected a positive number of "
            "steps."
        )
    call = _Call(
        strategy,
        fn,
        Source.of(strategy, iterator),
        iterations,
        initial_loop_values,
        _state.conversion(),
    )
    if tf.executing_eagerly():
        return _run_eagerly(call)
    if not tf.inside_function():
        return _build(call, automatic=False)
    return _build_in_function(call)


@dataclasses.dataclass(frozen=True)
class _Call:
    """One call to `run_steps_on_dataset`.

    Attributes:
        strategy: The strategy.
        fn: The step.
        source: Where the data comes from.
        iterations: The number of steps.
        initial_loop_values: The outputs if no step runs, or None.
        convert: The autograph context in which `fn` is converted.
    """

    strategy: Any
    fn: Callable[..., Any]
    source: Source
    iterations: Any
    initial_loop_values: Any
    convert: Any


def _build(call: _Call, *, automatic: bool) -> MultiStepContext:
    """Adds the loops to the default graph, which must not order its ops automatically.

    Args:
        call: The call.
        automatic: See `_loops.Steps`.
    """
    strategy = call.strategy
    result = MultiStepContext()

    def step(inputs: Any) -> list[tf.Tensor]:
        arguments = inputs if isinstance(inputs, tuple) else (inputs,)
        arguments = _values.map_leaves(_values.from_tower, arguments)
        result._outputs.clear()
        with _state.cross_tower(strategy):
            returned = _state.converted(call.fn, call.convert)(result, *arguments)
        operations = _to_run(returned)
        operations += [x for x in _state.computation().effects if _is_here(x)]
        with tf.control_dependencies(operations):
            outputs = [tf.identity(x) for x in tf.nest.flatten(result._outputs)]
            return [tf.constant(True), *outputs]

    def finish(outputs: list[tf.Tensor]) -> list[tf.Tensor]:
        named = tf.nest.pack_sequence_as(result._outputs, outputs)
        for name, aggregation in result._aggregations.items():
            if aggregation != VariableAggregation.NONE:
                named[name] = tf.nest.map_structure(
                    lambda x, how=aggregation: reduction.reduce_in_computation(how, x), named[name]
                )
        return list(tf.nest.flatten(named))

    def initial() -> list[list[Any]] | None:
        return _initial_values(strategy, result, call.initial_loop_values)

    steps = _loops.Steps(strategy, call.source, call.iterations, step, finish, initial, automatic)
    with strategy.scope():
        loop = _loops.on_cores if call.source.is_static() else _loops.on_host
        run_op, per_tower = loop(steps)
    result.run_op = run_op
    merged: dict[str, list[Any]] = {}
    for position, name in enumerate(_flat_names(result._outputs)):
        towers = [outputs[position] for outputs in per_tower]
        aggregated = result._aggregations[name] != VariableAggregation.NONE
        merged.setdefault(name, []).append(towers[0] if aggregated else _values.regroup(towers))
    result._outputs = {
        name: tf.nest.pack_sequence_as(structure, merged.get(name, []))
        for name, structure in result._outputs.items()
    }
    return result


def _flat_names(outputs: dict[str, Any]) -> list[str]:
    # tf.nest orders a dictionary by its keys.
    return [name for name in sorted(outputs) for _ in tf.nest.flatten(outputs[name])]


def _is_here(operation: Any) -> bool:
    return operation.graph is tf.compat.v1.get_default_graph()


def _to_run(returned: Any) -> list[Any]:
    """Returns the operations and tensors that must run, from what a step's function returned."""
    found: list[Any] = []
    for leaf in tf.nest.flatten(returned):
        if isinstance(leaf, _values.PerTower):
            leaf = leaf.local
        if isinstance(leaf, tf.Operation) or tf.is_tensor(leaf):
            found += tf.nest.flatten(leaf, expand_composites=True)
    return [x for x in found if _is_here(x)]


def _initial_values(
    strategy: Any, result: MultiStepContext, initial_loop_values: Any
) -> list[list[Any]] | None:
    """Returns the initial values of each tower's outputs."""
    if not initial_loop_values:
        return None
    names = sorted(result._outputs)
    if not isinstance(initial_loop_values, dict):
        flat = tf.nest.flatten(initial_loop_values)
        if len(flat) != len(names):
            raise ValueError(
                f"run_steps_on_dataset got {len(flat)} initial_loop_values for the outputs "
                f"{names}, expected one for each. Pass a dictionary, or leave them out."
            )
        initial_loop_values = dict(zip(names, flat, strict=True))
    if sorted(initial_loop_values) != names:
        raise ValueError(
            f"run_steps_on_dataset got initial_loop_values for {sorted(initial_loop_values)}, "
            f"expected the outputs that the function sets: {names}. They may be left out."
        )
    towers: list[list[Any]] = [[] for _ in range(strategy.num_towers)]
    for name in names:
        value = initial_loop_values[name]
        count = len(tf.nest.flatten(result._outputs[name]))
        listed = _values.unwrap(value)
        if count == 1 and len(listed) == strategy.num_towers:
            for tower, own in zip(towers, listed, strict=True):
                tower.append(own)
            continue
        flat = tf.nest.flatten(value)
        if len(flat) != count:
            raise ValueError(
                f"run_steps_on_dataset got {len(flat)} initial values for the output {name!r}, "
                f"expected {count}, or one for each of {strategy.num_towers} towers."
            )
        for tower in towers:
            tower.extend(flat)
    return towers


def _build_in_function(call: _Call) -> MultiStepContext:
    """Builds the loops in a separate function.

    A `tf.function` runs ops with side effects one after another, but the loop on the host and the
    computation must run at the same time.
    """
    built: list[MultiStepContext] = []

    def build() -> list[tf.Tensor]:
        result = _build(call, automatic=True)
        built.append(result)
        outputs = _flat_tensors(result._outputs)
        with tf.control_dependencies([result.run_op]):
            return [tf.constant(True), *(tf.identity(x) for x in outputs)]

    done, *outputs = _loops.call_unordered("run_steps_on_dataset", build)
    result = built[-1]
    result.run_op = done.op
    result._outputs = _pack_tensors(result._outputs, outputs)
    return result


def _flat_tensors(outputs: Any) -> list[Any]:
    """Returns the tensors of outputs, with all components of per-device values."""
    return [
        tensor
        for leaf in tf.nest.flatten(outputs)
        for tensor in (leaf.values if _values.is_per_device(leaf) else [leaf])
    ]


def _pack_tensors(like: Any, tensors: list[Any]) -> Any:
    """Returns `tensors` in the structure of `like`."""
    remaining = iter(tensors)

    def leaf(value: Any) -> Any:
        if not _values.is_per_device(value):
            return next(remaining)
        return _values.regroup([next(remaining) for _ in value.values])

    return tf.nest.map_structure(leaf, like)


def _run_eagerly(call: _Call) -> MultiStepContext:
    """Runs the steps as a function that is traced in the first call."""
    # The trace outlives the call, so it must not hold the call's function, iterator or values.
    strategy, iterations, convert = call.strategy, call.iterations, call.convert

    def build(traced: Callable[..., Any], given: Any) -> Any:
        initial, iterator = given
        source = Source.of(strategy, iterator)
        with strategy.scope():
            result = _build_in_function(
                _Call(strategy, traced, source, iterations, initial, convert)
            )
        setattr(tf.compat.v1.get_default_graph(), _CONTEXT, result)
        with tf.control_dependencies([result.run_op]):
            return [tf.identity(x) for x in _flat_tensors(result._outputs)]

    options = ("run_steps_on_dataset", _eager.identity(strategy), int(iterations))
    # The iterator is an argument so that one trace serves the iterators of all epochs.
    arguments = [_eager.to_tensors(_listed(call.initial_loop_values)), call.source.iterator]
    concrete = _eager.concrete(build, options, call.fn, arguments)
    outputs, _ = concrete(arguments)
    traced = getattr(concrete.graph, _CONTEXT)
    result = MultiStepContext()
    result._outputs = _pack_tensors(traced._outputs, outputs)
    result._aggregations = dict(traced._aggregations)
    result._non_tensor_outputs = dict(traced._non_tensor_outputs)
    return result


def _listed(initial_loop_values: Any) -> Any:
    """Returns the values, with lists in place of per-device values."""

    def leaf(value: Any) -> Any:
        return _values.unwrap(value) if _values.is_per_device(value) else value

    return tf.nest.map_structure(leaf, initial_loop_values)
