"""The models of tensorflow/tpu, scripts of TensorFlow 1."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from published import data
from published.program import Environment, Program, Repository

_REPOSITORY = Repository("tensorflow/tpu", "7dc921f846c9e4071f3884b768a7ddf521272a49")
# One that has official/r1/utils/logs.
_MODELS = Repository("tensorflow/models", "ec7fbf0d5858cf765f33e0c015dfa8ad56e3aa13")
_ENVIRONMENT = Environment(
    "tensorflow-tpu",
    packages=(
        *("matplotlib", "opencv-python-headless", "pandas", "pillow", "pycocotools", "pyyaml"),
        *("six", "tensorboard", "tensorflow-probability"),
    ),
    alone=("tensorflow-gan", "tensorflow-hub"),
)
_NAMED = "--tpu=any-name"
_IMAGE, _EPOCHS = 128, 3


def _iris(folder: pathlib.Path) -> None:
    # Where Keras looks for files that it has downloaded.
    keras = folder / ".keras" / "datasets"
    keras.mkdir(parents=True, exist_ok=True)
    data.flowers(keras / "iris_training.csv", 120)
    data.flowers(keras / "iris_test.csv", 32)


def _digit_records(folder: pathlib.Path) -> None:
    for name in ("train", "validation", "test"):
        data.digit_records(folder / f"{name}.tfrecords")


def _images(folder: pathlib.Path) -> None:
    for name in ("train", "validation"):
        # The class 0 is the background.
        data.images(folder / f"{name}-00000-of-00001", 96, first_label=1)


def _boxes(folder: pathlib.Path) -> None:
    data.boxes(folder / "train.tfrecord", _IMAGE)
    data.box_annotations(folder / "annotations.json", _IMAGE)


def _masks(folder: pathlib.Path) -> None:
    _boxes(folder)
    config = {
        "training_file_pattern": str(folder / "*.tfrecord"),
        "validation_file_pattern": str(folder / "*.tfrecord"),
        "val_json_file": str(folder / "annotations.json"),
        "image_size": [_IMAGE, _IMAGE],
        "num_classes": data.COLORS + 1,
        "backbone": "resnet18",
        # Without AVX-512, convolutions in bfloat16 are several times as slow.
        "precision": "float32",
        "gt_mask_size": 28,
        "rpn_pre_nms_topn": 100,
        "rpn_post_nms_topn": 50,
        "test_rpn_pre_nms_topn": 100,
        "test_rpn_post_nms_topn": 50,
        "test_detections_per_image": 10,
        "batch_size_per_im": 32,
        "fast_rcnn_mlp_head_dim": 64,
        "train_batch_size": 8,
        "eval_batch_size": 8,
        "eval_samples": 16,
        "total_steps": 20,
        "num_steps_per_eval": 10,
        "iterations_per_loop": 5,
        "warmup_steps": 5,
        "warmup_learning_rate": 0.0001,
        "init_learning_rate": 0.001,
    }
    (folder / "config.yaml").write_text(json.dumps(config))


def _livers(folder: pathlib.Path) -> None:
    size, classes = [16, 16, 16], 3
    data.livers(folder / "train.tfrecord", size, classes)
    config = {
        "input_image_size": size,
        "num_classes": classes,
        "num_base_filters": 4,
        "use_bfloat16": False,
        "depth": 3,
        "train_batch_size": 8,
        "eval_batch_size": 8,
        "train_item_count": 80,
        "eval_item_count": 16,
        "train_epochs": 2,
        "num_steps_per_eval": 10,
        "init_learning_rate": 0.01,
        "dropout_rate": 0.0,
    }
    (folder / "config.yaml").write_text(json.dumps(config))


def _ratings(folder: pathlib.Path) -> None:
    data.ratings(folder, 1000, _EPOCHS)


def _below(*folders: str) -> tuple[str, ...]:
    return tuple(f"{{source}}/{folder}" for folder in folders)


def _program(name: str, prepare: Any, *command: str, **fields: Any) -> Program:
    return Program(
        name=f"tpu-{name}",
        package="",
        environment=_ENVIRONMENT,
        command=("--legacy", *command),
        prepare=prepare,
        **{"repositories": (_REPOSITORY,), "checkpoint": "checkpoint", **fields},
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
        None,
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
    _program(
        "resnet",
        _images,
        "{source}/models/official/resnet/resnet_main.py",
        *(_NAMED, "--data_dir={data}", "--model_dir={model}", "--num_cores={cores}"),
        *(f"--num_label_classes={data.COLORS}", "--num_train_images=256", "--num_eval_images=64"),
        *("--train_batch_size=16", "--eval_batch_size=16", "--iterations_per_loop=5"),
        *("--train_steps=40", "--steps_per_eval=20", "--resnet_depth=18", "--image_size=64"),
        "--precision=float32",
        path=_below("models"),
        loss=r"INFO:tensorflow:loss = ([-+0-9.e]+)",
    ),
    _program(
        "retinanet",
        _boxes,
        "{source}/models/official/retinanet/retinanet_main.py",
        *(_NAMED, "--mode=train", "--eval_after_training", "--model_dir={model}"),
        *("--num_cores={cores}", "--training_file_pattern={data}/*.tfrecord"),
        *("--validation_file_pattern={data}/*.tfrecord", "--iterations_per_loop=5"),
        *("--val_json_file={data}/annotations.json", "--eval_samples=16"),
        # It predicts one image on each core.
        *("--eval_batch_size={cores}", "--train_batch_size=8", "--num_examples_per_epoch=80"),
        # Its warm-up requests join a string and bytes, which Python 3 refuses.
        *("--num_epochs=2", "--noadd_warmup_requests"),
        f"--hparams=image_size={_IMAGE},num_classes={data.COLORS + 1},resnet_depth=18",
        path=_below("models", "models/official", "models/official/retinanet"),
        loss=r"INFO:tensorflow:loss = ([-+0-9.e]+)",
        seconds=1200.0,
    ),
    _program(
        "mask-rcnn",
        _masks,
        "{source}/models/official/mask_rcnn/mask_rcnn_main.py",
        *(_NAMED, "--mode=train_and_eval", "--model_dir={model}", "--num_cores={cores}"),
        "--config_file={data}/config.yaml",
        # It imports models that it does not use.
        path=_below(
            *("models", "models/official/mask_rcnn", "models/official/mnasnet"),
            "models/official/efficientnet",
        ),
        loss=r"INFO:tensorflow:loss = ([-+0-9.e]+)",
        seconds=1200.0,
    ),
    _program(
        "unet3d",
        _livers,
        "{source}/models/official/unet3d/unet_main.py",
        *(_NAMED, "--mode=train_and_eval", "--model_dir={model}", "--num_cores={cores}"),
        *("--config_file={data}/config.yaml", "--iterations_per_loop=5"),
        *("--training_file_pattern={data}/*.tfrecord", "--eval_file_pattern={data}/*.tfrecord"),
        # Each volume is split between two cores.
        *(f"--input_partition_dims={cores}" for cores in (1, 2, 1, 1, 1)),
        path=_below("models"),
        loss=r"INFO:tensorflow:loss = ([-+0-9.e]+)",
        seconds=1200.0,
    ),
    _program(
        "ncf",
        _ratings,
        "{source}/models/experimental/ncf/ncf_main.py",
        *(_NAMED, "--model_dir={model}", "--num_tpu_shards={cores}", "--iterations_per_loop=4"),
        *("--train_dataset_path={data}/training_cycle_{{}}/*", "--layers=32,16,8"),
        *("--eval_dataset_path={data}/eval_data/*", "--mlp_regularization=0.,0.,0."),
        *("--input_meta_data_path={data}/metadata.json", "--num_factors=8"),
        # 1000 for each core, as the data says.
        *("--batch_size={cores}000", "--eval_batch_size={cores}000", f"--train_epochs={_EPOCHS}"),
        "--learning_rate=0.02",
        repositories=(_REPOSITORY, _MODELS),
        path=_below("../models"),
        loss=r"Iteration \d+: HR = .* Loss = ([0-9.]+)",
    ),
)
