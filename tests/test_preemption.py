"""PreemptionCheckpointHandler under TPUStrategy: SIGTERM asks for a checkpoint."""

from __future__ import annotations

import os
import pathlib
import signal
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

STEPS_BEFORE = 3


@pytest.fixture
def sigterm_afterwards() -> Any:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


class Training:
    """Counts steps on the cores, under a handler that saves to `folder`."""

    def __init__(self, strategy: Any, folder: pathlib.Path) -> None:
        self.strategy = strategy
        with strategy.scope():
            self.steps = tf.Variable(
                0, dtype=tf.int64, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA
            )
        checkpoint = tf.train.Checkpoint(steps=self.steps)
        manager = tf.train.CheckpointManager(checkpoint, str(folder), max_to_keep=1)
        self.handler = tf.distribute.experimental.PreemptionCheckpointHandler(
            strategy.cluster_resolver, manager
        )

        @tf.function
        def step() -> None:
            strategy.run(lambda: (self.steps.assign_add(1), None)[1])

        self.step = step


@pytest.mark.usefixtures("sigterm_afterwards")
@pytest.mark.parametrize("replicas", [1, 2])
def test_sigterm_saves_a_checkpoint_and_ends(
    make_strategy: Callable[[int], Any], tmp_path: pathlib.Path, replicas: int
) -> None:
    training = Training(make_strategy(replicas), tmp_path)

    def train() -> None:
        with training.handler.watch_preemption_scope():
            for step in range(STEPS_BEFORE + 1):
                if step == STEPS_BEFORE:
                    os.kill(os.getpid(), signal.SIGTERM)
                training.handler.run(training.step)

    with pytest.raises(SystemExit) as ended:
        train()
    assert ended.value.code == 42
    assert training.steps.numpy() == STEPS_BEFORE
    assert tf.train.latest_checkpoint(str(tmp_path)) is not None

    # The next program goes on where this one ended.
    resumed = Training(make_strategy(replicas), tmp_path)
    assert resumed.steps.numpy() == STEPS_BEFORE
    with resumed.handler.watch_preemption_scope():
        resumed.handler.run(resumed.step)
    assert resumed.steps.numpy() == STEPS_BEFORE + 1


@pytest.mark.usefixtures("sigterm_afterwards")
def test_save_checkpoint_if_preempted(
    make_strategy: Callable[[int], Any], tmp_path: pathlib.Path
) -> None:
    training = Training(make_strategy(2), tmp_path)
    training.step()
    training.handler.save_checkpoint_if_preempted()
    assert tf.train.latest_checkpoint(str(tmp_path)) is None
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(SystemExit):
        training.handler.save_checkpoint_if_preempted()
    assert tf.train.latest_checkpoint(str(tmp_path)) is not None


@pytest.mark.usefixtures("sigterm_afterwards")
def test_the_programs_own_handler_is_called_too(
    make_strategy: Callable[[int], Any], tmp_path: pathlib.Path
) -> None:
    received: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    Training(make_strategy(1), tmp_path)
    os.kill(os.getpid(), signal.SIGTERM)
    assert received == [signal.SIGTERM]
