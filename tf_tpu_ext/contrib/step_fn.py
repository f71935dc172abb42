"""Training steps as objects, from `tf.contrib.distribute`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_utils

from tf_tpu_ext.towers.reduction import VariableAggregation


class Step:
    """A training step. Subclasses define `__call__`, which runs it.

    Example:
        >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
        >>> class Count(Step):
        ...     def __call__(self):
        ...         print(self.distribution.num_towers)
        >>> Count(strategy)()
        8
    """

    def __init__(self, distribution: Any) -> None:
        """Creates a step for the towers of `distribution`."""
        self._distribution = distribution

    @property
    def distribution(self) -> Any:
        """The strategy.

        Example:
            >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
            >>> Step(strategy).distribution is strategy
            True
        """
        return self._distribution

    def __call__(self) -> Any:
        """Runs the step, or returns the operation that runs it."""
        raise NotImplementedError(
            f"{type(self).__name__} has no __call__, expected one that runs a step. Define it, or "
            "use StandardSingleLossStep."
        )


class StandardInputStep(Step):
    """A training step that takes its data from a dataset.

    Example:
        >>> strategy = tf_tpu_ext.TPUStrategy(None, steps_per_run=1)
        >>> class PrintStep(StandardInputStep):
        ...     def __call__(self):
        ...         print([int(x) for x in strategy.unwrap(self._iterator.get_next())])
        >>> PrintStep(lambda: tf.data.Dataset.range(8), strategy)()
        [0, 1, 2, 3, 4, 5, 6, 7]
    """

    def __init__(self, dataset_fn: Callable[[], tf.data.Dataset], distribution: Any) -> None:
        """Creates a step with the distributed dataset from `dataset_fn`."""
        super().__init__(distribution)
        self._iterator = distribution.distribute_dataset(dataset_fn).make_one_shot_iterator()


class StandardSingleLossStep(StandardInputStep):
    """A training step that minimizes one loss.

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
        """Creates the step.

        Args:
            dataset_fn: Returns the dataset, with batches sized for one tower.
            loss_fn: Called as `loss_fn(context, *inputs)`, with a `MultiStepContext`.
            optimizer: A TensorFlow 1 optimizer.
            distribution: The strategy.
            iterations_per_step: The number of iterations per call.
        """
        super().__init__(dataset_fn, distribution)
        self._loss_fn = loss_fn
        self._optimizer = optimizer
        self._iterations_per_step = iterations_per_step

    def __call__(self) -> Any:
        """Trains. In a graph, returns the operation that trains."""

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
    """Runs a step repeatedly, in a Session or eagerly.

    Example:
        >>> steps = []
        >>> monitor = Monitor(lambda: steps.append("done"))
        >>> monitor.run_steps(2)
        >>> steps
        ['done', 'done']
    """

    def __init__(self, step_callable: Callable[[], Any], session: Any = None) -> None:
        """Creates the monitor. In a graph, it also initializes the variables.

        Args:
            step_callable: Runs a step. In a graph, returns the operation that runs it.
            session: The Session that runs the steps of a graph; None in eager code.

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
        """Runs `num_steps` steps, or runs forever if it is None.

        Example:
            >>> Monitor(lambda: print("step")).run_steps(2)
            step
            step
        """
        done = 0
        while num_steps is None or done < num_steps:
            self._run_step()
            done += 1


def get_loss_reduction() -> Any:
    """Returns how to combine the towers' losses, as a `VariableAggregation`.

    Inside `call_for_each_tower`, it is MEAN unless the graph's last loss is a sum. Elsewhere, it is
    SUM.

    Example:
        >>> get_loss_reduction().name
        'SUM'
    """
    reduce_op = distribute_utils.get_loss_reduction()
    return VariableAggregation.SUM if reduce_op.name == "SUM" else VariableAggregation.MEAN
