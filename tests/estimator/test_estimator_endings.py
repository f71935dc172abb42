"""How runs of TPUEstimators end: with their cause, without threads, and ready for the next."""

from __future__ import annotations

import importlib.util
import types
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

if importlib.util.find_spec("tensorflow_estimator") is None:
    pytest.skip("tensorflow-estimator is not installed", allow_module_level=True)

import tf_tpu_ext.estimator as te  # supplies modules that tensorflow-estimator imports

from tensorflow_estimator.python.estimator.tpu import error_handling  # isort: skip

v1 = tf.compat.v1


@pytest.fixture
def fails(make_estimator, input_fn, monkeypatch):
    """Expects an error of a training; afterwards, the next training has to work."""

    def sleep(seconds: float) -> None:
        raise AssertionError("It is tensorflow-estimator itself that waits, and closes the session")

    monkeypatch.setattr(error_handling, "time", types.SimpleNamespace(sleep=sleep))

    def check(kind: type[BaseException], message: str, train: Any) -> None:
        estimator = make_estimator(folder="next")
        estimator.train(input_fn, steps=1)
        with pytest.raises(kind, match=message):
            train()
        estimator.train(input_fn, steps=6)
        assert estimator.get_variable_value("global_step") == 7

    return check


def test_input_fn_that_raises(make_estimator, fails):
    def broken(params: dict[str, Any]) -> Any:
        raise ValueError("no input today")

    fails(ValueError, "no input today", lambda: make_estimator().train(broken, steps=20))


def test_pipeline_that_fails(make_estimator, input_fn, fails):
    def broken(params: dict[str, Any]) -> Any:
        calls = []

        def fail_later(x: np.ndarray) -> np.ndarray:
            calls.append(1)
            if len(calls) > 12:
                raise ValueError("this row is broken")
            return x

        def check(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            checked = tf.numpy_function(fail_later, [x], tf.float32)
            return tf.ensure_shape(checked, x.shape), y

        return input_fn(params).map(check)

    fails(
        tf.errors.InvalidArgumentError,
        "this row is broken",
        lambda: make_estimator().train(broken, steps=20),
    )


@pytest.mark.parametrize("where", ["PER_HOST_V1", "PER_HOST_V2"])
def test_input_that_ends_early(make_estimator, data, fails, where):
    def short(params: dict[str, Any]) -> Any:
        dataset = tf.data.Dataset.from_tensor_slices(data)
        return dataset.batch(params["batch_size"], drop_remainder=True)

    layout = getattr(te.InputPipelineConfig, where)
    estimator = make_estimator(tpu_config={"per_host_input_for_training": layout})
    fails(tf.errors.OutOfRangeError, "End of sequence", lambda: estimator.train(short, steps=99))


def test_host_call_that_fails(make_estimator, input_fn, fails):
    def host_call(step: tf.Tensor, loss: tf.Tensor) -> Any:
        def fail(step: np.ndarray) -> np.ndarray:
            if step[0] > 5:
                raise ValueError("the host call is broken")
            return step

        return tf.numpy_function(fail, [step], tf.int64)

    estimator = make_estimator(host_call=host_call)
    fails(
        tf.errors.InvalidArgumentError,
        "the host call is broken",
        lambda: estimator.train(input_fn, steps=30),
    )


def test_loss_that_is_not_a_number(make_estimator, input_fn, fails):
    def change(loss: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        return loss * tf.where(step > 3, np.float32("nan"), 1.0)

    estimator = make_estimator(change=change)
    fails(tf.errors.InvalidArgumentError, "NaN", lambda: estimator.train(input_fn, steps=30))


def test_model_that_does_not_compile(make_estimator, input_fn, fails):
    def change(loss: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        text = tf.strings.as_string(loss)
        return loss + tf.cast(tf.strings.length(text), tf.float32)

    estimator = make_estimator(change=change)
    fails(tf.errors.OpError, "AsString", lambda: estimator.train(input_fn, steps=30))


def test_predictions_that_are_not_all_taken(make_estimator, input_fn):
    estimator = make_estimator()
    estimator.train(input_fn, max_steps=1)

    def endless(params: dict[str, Any]) -> Any:
        return input_fn(params).map(lambda x, y: x)

    predictions = estimator.predict(endless)
    assert next(predictions)["probabilities"].shape == (3,)
    predictions.close()
    assert next(estimator.predict(endless))["probabilities"].shape == (3,)


def test_ctrl_c_ends_a_training(run_python):
    """In a loop on the cores that would take hours."""
    done = run_python(
        """
        import os, signal, sys, tempfile, threading
        import numpy as np, tensorflow as tf
        import tf_tpu_ext.estimator as te

        sys.path.insert(0, "estimator")
        import conftest as shared

        def input_fn(params):
            x = np.zeros([32, 6], np.float32), np.zeros([32], np.int32)
            dataset = tf.data.Dataset.from_tensor_slices(x).repeat()
            return dataset.batch(params["batch_size"], drop_remainder=True)

        def host_call(step, loss):
            if_started = lambda x: (started.set(), x)[-1]
            return tf.numpy_function(if_started, [step], tf.int64)

        started = threading.Event()
        config = te.RunConfig(
            model_dir=tempfile.mkdtemp(),
            tpu_config=te.TPUConfig(iterations_per_loop=10**7, num_shards=2),
        )
        def make(**params):
            return te.TPUEstimator(
                shared.model_fn, config=config, train_batch_size=32, params=params
            )

        def interrupt():
            started.wait()
            os.kill(os.getpid(), signal.SIGINT)

        # Jobs that a shell runs in the background ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Thread(target=interrupt).start()
        try:
            make(host_call=host_call).train(input_fn, steps=10**8)
        except KeyboardInterrupt:
            print("interrupted")
        threads = [t.name for t in threading.enumerate() if "EventLogger" not in t.name]
        assert threads == ["MainThread"], threads
        make().train(input_fn, max_steps=3)
        print(make().get_variable_value("global_step"))
        """,
        env={"TF_TPU_EXT_CORES": "2"},
    )
    assert done.stdout.split() == ["interrupted", "3"]
