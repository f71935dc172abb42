"""The models of tensorflow/tpu, scripts of TensorFlow 1."""

from __future__ import annotations

import pathlib
from typing import Any

from published import data
from published.program import Environment, Program, Repository

_REPOSITORY = Repository("tensorflow/tpu", "7dc921f846c9e4071f3884b768a7ddf521272a49")
_ENVIRONMENT = Environment(
    "tensorflow-tpu",
    packages=("pandas", "pillow", "tensorboard", "tensorflow-probability"),
    alone=("tensorflow-gan", "tensorflow-hub"),
)
_NAMED = "--tpu=any-name"


def _nothing(folder: pathlib.Path) -> None:
    """Makes no data: the program makes its own."""


def _iris(folder: pathlib.Path) -> None:
    # Where Keras looks for files that it has downloaded.
    keras = folder / ".keras" / "datasets"
    keras.mkdir(parents=True, exist_ok=True)
    data.flowers(keras / "iris_training.csv", 120)
    data.flowers(keras / "iris_test.csv", 32)


def _digit_records(folder: pathlib.Path) -> None:
    for name in ("train", "validation", "test"):
        data.digit_records(folder / f"{name}.tfrecords")


def _program(name: str, prepare: Any, *command: str, **fields: Any) -> Program:
    return Program(
        name=f"tpu-{name}",
        package="",
        environment=_ENVIRONMENT,
        repositories=(_REPOSITORY,),
        command=("--legacy", *command),
        prepare=prepare,
        **{"checkpoint": "checkpoint", **fields},
    )


PROGRAMS = (
    _program(
        "mnist",
        _digit_records,
        "{source}/models/official/mnist/mnist_tpu.py",
        *(_NAMED, "--data_dir={data}", "--model_dir={model}", "--num_shards={cores}"),
        *("--batch_size=64", "--iterations=20", "--train_steps=100", "--eval_steps=2"),
    ),
    _program(
        "mnist-keras",
        _nothing,
        "{source}/models/experimental/mnist_keras/mnist.py",
        *(_NAMED, "--fake_data", "--model_dir={model}"),
        loss=r" loss: ([-+0-9.e]+)",
        # It writes none.
        checkpoint=None,
    ),
    _program(
        "custom-estimator",
        _iris,
        *("--gs", "{model}", "{source}/models/samples/core/get_started/custom_tpuestimator.py"),
        *(_NAMED, "--model_dir=gs://bucket/model", "--train_steps=300", "--iterations=50"),
        variables=(("HOME", "{data}"),),
        loss=r"INFO:tensorflow:loss = ([-+0-9.e]+)",
        checkpoint="bucket/model/checkpoint",
    ),
    _program(
        "dcgan",
        _digit_records,
        "{source}/models/experimental/dcgan/dcgan_main.py",
        *(_NAMED, "--dataset=mnist", "--model_dir={model}", "--num_shards={cores}"),
        *("--mnist_train_data_file={data}/train.tfrecords", "--batch_size=64"),
        *("--mnist_test_data_file={data}/validation.tfrecords", "--train_steps=60"),
        *("--train_steps_per_eval=20", "--iterations_per_loop=10"),
        # The losses of two players: either may rise.
        falls=10.0,
        loss=r"INFO:tensorflow:loss = ([-+0-9.e]+)",
    ),
)
