"""`TPUStrategy`: the strategies of `tf.contrib.distribute` and of TensorFlow 2 in one class."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_lib

from tf_tpu_ext.towers import _placement, _state, context
from tf_tpu_ext.towers._combine_methods import CombineMethods
from tf_tpu_ext.towers._run_methods import RunMethods
from tf_tpu_ext.towers._system_methods import SystemMethods
from tf_tpu_ext.towers._variable_methods import VariableMethods


@_state.transparent_methods
class TPUStrategy(
    RunMethods, CombineMethods, VariableMethods, SystemMethods, tf.distribute.TPUStrategy
):
    """Runs a function on every TPU core: each core is a tower.

    This is TensorFlow 1's `tf.contrib.distribute.TPUStrategy`, with all its members. It is also a
    `tf.distribute.TPUStrategy`, so Keras, `run`, distributed datasets and checkpoints work as
    usual. It can be used eagerly, in a `tf.function`, and in graphs for a Session.

    `call_for_each_tower` traces and compiles its function once for all towers. Inside the function,
    `get_tower_context()` returns the context of the tower: `tower_id` is its number, and
    `merge_call` calls a function once with the values of all towers.

    >>> strategy = TPUStrategy(tf.distribute.cluster_resolver.TPUClusterResolver(), steps_per_run=1)
    >>> def merge_fn(distribution, three_plus_tower_id):
    ...     return sum(distribution.unwrap(three_plus_tower_id))
    >>> def fn(three):
    ...     tower = tf_tpu_ext.towers.get_tower_context()
    ...     v = three + tower.tower_id
    ...     return tower.merge_call(merge_fn, v) + v
    >>> with strategy.scope():
    ...     merged = strategy.call_for_each_tower(fn, 3)
    >>> print([int(x) for x in strategy.unwrap(merged)])  # On two cores.
    [10, 11]

    docs/towers.md lists the old API next to the new one.

    Defined by TensorFlow 1 at
    https://github.com/tensorflow/tensorflow/blob/v1.12.0/tensorflow/contrib/distribute/python/tpu_strategy.py
    """

    def __init__(
        self,
        tpu_cluster_resolver: Any = None,
        steps_per_run: int = 1,
        num_cores: int | None = None,
        *,
        experimental_device_assignment: tf.tpu.experimental.DeviceAssignment | None = None,
    ) -> None:
        """Creates a strategy for the cores of a TPU.

        Args:
            tpu_cluster_resolver: A `TPUClusterResolver`. None means the TPU of this machine.
            steps_per_run: How many steps tf_keras runs in TensorFlow 1 graphs before it returns to
                the host. Nothing else uses it; see `iterations` in `run_steps_on_dataset`,
                `steps_per_execution` in Keras and `iterations_per_loop` in TPUEstimator.
            num_cores: How many cores to use, starting with the first. None uses all.
            experimental_device_assignment: Which core runs each tower, as for
                `tf.distribute.TPUStrategy`. Pass it by keyword, because that class takes it at the
                position of `steps_per_run`.

        Raises:
            ValueError: `num_cores` is not between 1 and the number of cores, `steps_per_run` is not
                positive, the assignment gives a tower several cores, or both `num_cores` and an
                assignment are given.
        """
        if not isinstance(steps_per_run, int) or steps_per_run < 1:
            advice = "Pass 1 to return to the host after every step."
            if isinstance(steps_per_run, tf.tpu.experimental.DeviceAssignment):
                advice = "Pass the assignment by keyword: experimental_device_assignment=..."
            raise ValueError(
                f"TPUStrategy got steps_per_run={steps_per_run!r}, expected a positive integer. "
                f"{advice}"
            )
        if tpu_cluster_resolver is None:
            tpu_cluster_resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        if experimental_device_assignment is None:
            assignment = _placement.first_cores(tpu_cluster_resolver, num_cores)
        else:
            assignment = experimental_device_assignment
            _placement.check_assignment(assignment, num_cores)
        extended = _placement.TowersExtended(self, tpu_cluster_resolver, steps_per_run, assignment)
        # TensorFlow's own constructor takes no `extended`.
        distribute_lib.Strategy.__init__(self, extended)
        self._enable_packed_variable_in_eager_mode = True
        self.steps_per_run = steps_per_run

    # TensorFlow's v1 optimizers read this to decide whether to divide the loss by the number of
    # towers.

    @property
    def _scale_loss_for_estimator(self) -> bool:
        return self.__dict__.get("_scales_loss", False) or isinstance(
            tf.distribute.get_replica_context(), context.TowerReplicaContext
        )

    @_scale_loss_for_estimator.setter
    def _scale_loss_for_estimator(self, value: bool) -> None:
        self.__dict__["_scales_loss"] = value
