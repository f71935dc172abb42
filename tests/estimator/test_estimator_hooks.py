"""Scaffolds and TensorFlow's hooks on TPUEstimators: profiler, checkpoints, summaries, the end."""

from __future__ import annotations

import importlib.util
import json
import pathlib
from typing import Any

import pytest
import tensorflow as tf

if importlib.util.find_spec("tensorflow_estimator") is None:
    pytest.skip("tensorflow-estimator is not installed", allow_module_level=True)

import tf_tpu_ext.estimator as te

v1 = tf.compat.v1


def counting_model(on_spec: Any = None) -> Any:
    """A model whose weight grows by 1 a step; its loss is the weight before the step."""

    def model(features: tf.Tensor, labels: tf.Tensor, mode: str, params: Any) -> Any:
        weight = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        extra = on_spec(mode) if on_spec else {}
        if mode == te.ModeKeys.PREDICT:
            rows = tf.fill([tf.shape(features)[0]], weight.read_value())
            return te.TPUEstimatorSpec(mode, predictions={"w": rows}, **extra)
        loss = weight + 0.0 * tf.reduce_mean(features)
        optimizer = v1.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(1.0))
        train_op = optimizer.minimize(-loss, v1.train.get_global_step())
        return te.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, **extra)

    return model


@pytest.fixture
def rows(data):
    def input_fn(params: dict[str, Any]) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(data[0][:32]).batch(params["batch_size"])

    return input_fn


class Note(v1.train.SessionRunHook):
    """Notes what happens to it, and the global step after each run."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.seen: list[str] = []

    def begin(self) -> None:
        self.step = v1.train.get_global_step()
        self.seen.append("begin")

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.seen.append("created")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.steps.append(int(run_context.session.run(self.step)))

    def end(self, session: Any) -> None:
        self.seen.append("end")


@pytest.mark.parametrize("use_tpu", [True, False])
def test_scaffold_initializes_and_saves(make_estimator, input_fn, rows, use_tpu):
    modes = []

    def on_spec(mode: str) -> dict[str, Any]:
        def scaffold() -> Any:
            modes.append(mode)
            (weight,) = [v for v in v1.global_variables() if v.op.name == "w"]
            value = v1.placeholder(tf.float32, [])
            assign = weight.assign(value)
            return v1.train.Scaffold(
                init_fn=lambda _, session: session.run(assign, {value: 40.0}),
                saver=v1.train.Saver(max_to_keep=1),
            )

        return {"scaffold_fn": scaffold}

    estimator = make_estimator(
        use_tpu, model=counting_model(on_spec), config={"save_checkpoints_steps": 5}
    )
    estimator.train(input_fn, max_steps=10)
    assert estimator.get_variable_value("w") == 50
    # The scaffold's saver keeps one checkpoint, TensorFlow's own five.
    assert len(list(pathlib.Path(estimator.model_dir).glob("model.ckpt-*.index"))) == 1
    # The checkpoint goes before init_fn.
    assert [row["w"] for row in estimator.predict(rows)] == [50.0] * 32
    assert estimator.evaluate(input_fn, steps=2)["loss"] == 50
    assert modes == ["train", "infer", "eval"]


def test_hooks_of_every_mode(make_estimator, input_fn, rows):
    notes = {mode: Note() for mode in ("train", "eval", "infer")}
    names = {"train": "training_hooks", "eval": "evaluation_hooks", "infer": "prediction_hooks"}
    estimator = make_estimator(
        model=counting_model(lambda mode: {names[mode]: [notes[mode]]}),
        tpu_config={"iterations_per_loop": 4},
    )
    stop = v1.train.StopAtStepHook(last_step=8)
    estimator.train(input_fn, max_steps=100, hooks=[stop])
    # TensorFlow's hook reads the step while the loop runs, so it may see the end one loop later.
    assert notes["train"].steps in ([4, 8], [4, 8, 12])
    last = notes["train"].steps[-1]
    assert estimator.get_variable_value("w") == last
    estimator.evaluate(input_fn, steps=3)
    assert len(list(estimator.predict(rows))) == 32
    for note in notes.values():
        assert note.seen == ["begin", "created", "end"]
    assert notes["eval"].steps == [last]
    assert set(notes["infer"].steps) == {last}


def test_profiler_hook_writes_what_the_steps_ran(make_estimator, input_fn, tmp_path):
    folder = tmp_path / "profile"
    folder.mkdir()
    with tf.Graph().as_default():  # as in a program of TensorFlow 1
        profiler = v1.train.ProfilerHook(save_steps=5, output_dir=str(folder))
    estimator = make_estimator(model=counting_model())
    estimator.train(input_fn, max_steps=15, hooks=[profiler])
    assert estimator.get_variable_value("w") == 15
    timelines = sorted(folder.glob("timeline-*.json"))
    steps = [int(path.stem.partition("-")[2]) for path in timelines]
    # As TensorFlow's hook counts, a step a run, it is not every loop.
    assert steps
    assert set(steps) <= {10, 15}
    for path in timelines:
        events = json.loads(path.read_text())["traceEvents"]
        programs = {e["pid"] for e in events if e.get("args", {}).get("op") == "TPUExecute"}
        devices = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
        # One launch for the loop of each core.
        assert sorted(device for pid, device in devices.items() if pid in programs) == [
            f"/job:localhost/replica:0/task:0/device:TPU:{core} Compute" for core in range(8)
        ]


def test_checkpoints_summaries_and_logs_come_between_loops(make_estimator, input_fn, tmp_path):
    logged: list[dict[str, Any]] = []
    saved: list[int] = []
    folder = tmp_path / "events"

    class Saved(v1.train.CheckpointSaverListener):
        def after_save(self, session: Any, global_step_value: int) -> None:
            saved.append(int(global_step_value))

    estimator = make_estimator(
        model=counting_model(),
        config={"save_checkpoints_steps": None, "save_checkpoints_secs": None},
    )
    hooks = [
        v1.train.CheckpointSaverHook(str(tmp_path / "model"), save_steps=5, listeners=[Saved()]),
        v1.train.LoggingTensorHook(
            ["global_step/Read/ReadVariableOp:0"],
            every_n_iter=1,
            formatter=lambda values: logged.append(values) or "",
        ),
        v1.train.StepCounterHook(every_n_steps=5, output_dir=str(folder)),
    ]
    estimator.train(input_fn, max_steps=12, hooks=hooks)
    assert saved == [0, 5, 10, 12]
    # Another thread writes the file.
    v1.summary.FileWriterCache.get(str(folder)).flush()
    counted = [
        event.step
        for path in folder.glob("events*")
        for event in v1.train.summary_iterator(str(path))
        if event.summary.value
    ]
    assert counted[-1] == 12
    # A step is read before its loop has written it, or after.
    seen = [int(value) for values in logged for value in values.values()]
    assert len(seen) == 3
    assert all(step in (first, first + 5, 12) for step, first in zip(seen, (0, 5, 10), strict=True))


def test_early_stopping_ends_training(make_estimator, input_fn):
    estimator = make_estimator(model=counting_model(), config={"save_checkpoints_steps": 5})
    steps = []
    for _ in range(4):
        stop = te.stop_if_no_decrease_hook(
            estimator, "loss", max_steps_without_decrease=10, run_every_secs=None, run_every_steps=1
        )
        estimator.train(input_fn, steps=10, hooks=[stop])
        estimator.evaluate(input_fn, steps=1)
        steps.append(int(estimator.get_variable_value("global_step")))
    # The loss grows: once ten steps have brought no decrease, training ends after its first loop.
    assert steps == [10, 20, 25, 30]
