"""TPUEstimator trains from a pipeline of another environment as from its own."""

from __future__ import annotations

import gc
import importlib.util
import pathlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

if importlib.util.find_spec("tensorflow_estimator") is None:
    pytest.skip("tensorflow-estimator is not installed", allow_module_level=True)

import tf_tpu_ext.io

PIPELINE = """
import tensorflow as tf
import tensorflow_io

def make(data, batch):
    return tf.data.Dataset.from_tensor_slices(data).repeat().batch(batch, drop_remainder=True)
"""


@pytest.fixture(scope="module", autouse=True)
def listener(io_environment: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The process's thread that hears Ctrl-C for all pipelines stays: it starts before the test."""
    path = tmp_path_factory.mktemp("first") / "pipeline.py"
    path.write_text(PIPELINE)
    assert len(list(tf_tpu_ext.io.dataset(f"{path}:make", [1, 2, 3], 2).take(1))) == 1


def test_training_ends_with_the_same_weights(
    make_estimator: Any, data: Any, input_fn: Any, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "pipeline.py").write_text(PIPELINE)

    def from_pipeline(params: dict[str, Any]) -> tf.data.Dataset:
        place = f"{tmp_path / 'pipeline.py'}:make"
        return tf_tpu_ext.io.dataset(place, data, params["batch_size"])

    trained = []
    for make in (input_fn, from_pipeline):
        estimator = make_estimator(folder=f"model{len(trained)}")
        estimator.train(make, steps=6)
        trained.append([estimator.get_variable_value(name) for name in ("w", "b")])
        assert np.abs(trained[-1][0]).max() > 0.01
    for got, expected in zip(trained[1], trained[0], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)
    # The pipeline ends with the graph that it was made in.
    del estimator
    gc.collect()
