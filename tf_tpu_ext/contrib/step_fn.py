"""Training steps as objects, as `tf.contrib.distribute` had them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_utils

from tf_tpu_ext.towers.reduction import VariableAggregation


class Step:
    """One step of training, done by calling it."""

    def __init__(self, distribution: Any) -> None:
        """Makes a step on the towers of `distribution`."""
        self._distribution = distribution

    @property
    def distribution(self) -> Any:
        """The strategy."""
        return self._distribution

    def __call__(self) -> Any:
        """Does the step, or returns the operation that does it."""
        raise NotImplementedError(
            f"{type(self).__name__} has no __call__, expected one that does a step. Write it, or "
            "use StandardSingleLossStep."
        )


class StandardInputStep(Step):
    """A step that takes its data from a dataset."""

    def __init__(self, dataset_fn: Callable[[], tf.data.Dataset], distribution: Any) -> None:
        """Distributes the dataset that `dataset_fn` returns."""
        super().__init__(distribution)
        self._iterator = distribution.distribute_dataset(dataset_fn).make_one_shot_iterator()


class StandardSingleLossStep(StandardInputStep):
    """A step that minimizes one loss.

    Example:
        >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
        >>> with strategy.scope():
        ...     weight = tf.Variable(1.0)
        >>> step = StandardSingleLossStep(
        ...     lambda: tf.data.Dataset.from_tensors(2.0).repeat(),
        ...     lambda context, x: (weight * x - 6.0) ** 2,
        ...     tf.compat.v1.train.GradientDescentOptimizer(0.1),
        ...     strategy,
        ...     iterations_per_step=20,
        ... )
        >>> step()
        >>> print(f"{weight.numpy():.3f}")
        3.000
    """

    def __init__(
        self,
        dataset_fn: Callable[[], tf.data.Dataset],
        loss_fn: Callable[..., Any],
        optimizer: tf.compat.v1.train.Optimizer,
        distribution: Any,
        iterations_per_step: int = 1,
    ) -> None:
        """Makes the step.

        Args:
            dataset_fn: Returns the dataset, with batches for one tower.
            loss_fn: Called as `loss_fn(context, *inputs)`, with a `MultiStepContext`.
            optimizer: An optimizer of TensorFlow 1.
            distribution: The strategy.
            iterations_per_step: How many times one call trains.
        """
        super().__init__(dataset_fn, distribution)
        self._loss_fn = loss_fn
        self._optimizer = optimizer
        self._iterations_per_step = iterations_per_step

    def __call__(self) -> Any:
        """Trains; in a graph returns the operation that does."""

        def tower(context: Any, *inputs: Any) -> Any:
            return self._optimizer.minimize(lambda: self._loss_fn(context, *inputs))

        def step_fn(context: Any, *inputs: Any) -> Any:
            trained = self.distribution.call_for_each_tower(tower, context, *inputs)
            return self.distribution.group(trained)

        with self.distribution.scope():
            return self.distribution.run_steps_on_dataset(
                step_fn, self._iterator, self._iterations_per_step
            ).run_op


class Monitor:
    """Calls a step again and again, in a Session or eagerly."""

    def __init__(self, step_callable: Callable[[], Any], session: Any = None) -> None:
        """Prepares to call `step_callable`, which in a graph returns what `session` is to run.

        Raises:
            ValueError: There is a session in eager code, or none in a graph.
        """
        if tf.executing_eagerly() != (session is None):
            raise ValueError(
                f"Monitor got session={session!r}, expected a Session in a graph and None in eager "
                "code. Pass the session in which to run the steps."
            )
        if session is None:
            self._run_step = step_callable
        else:
            self._run_step = session.make_callable(step_callable())
            session.run(tf.compat.v1.global_variables_initializer())

    def run_steps(self, num_steps: int | None = None) -> None:
        """Runs so many steps, or without an end."""
        done = 0
        while num_steps is None or done < num_steps:
            self._run_step()
            done += 1


def get_loss_reduction() -> Any:
    """Returns how the towers' losses are combined: SUM after a loss that is a sum, else MEAN."""
    reduce_op = distribute_utils.get_loss_reduction()
    return VariableAggregation.SUM if reduce_op.name == "SUM" else VariableAggregation.MEAN
