"""SimCLR, both versions."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

from published import data
from published.program import Environment, Program, Repository

_REPOSITORY = Repository("google-research/simclr", "383d4143fd8cf7879ae10f1046a9baeb753ff438")
_ENVIRONMENT = Environment(
    "simclr",
    packages=("importlib-resources", "tensorboard", "tensorflow-datasets"),
    # Later ones have no `create_module_spec`, with which the first version exports its model.
    alone=("tensorflow-hub==0.15.0",),
)


def _colors(folder: pathlib.Path) -> None:
    """Writes CIFAR-10 as tensorflow_datasets keeps it, with images in the color of their class."""
    import tensorflow_datasets as tfds

    features = tfds.features.FeaturesDict(
        {
            "id": tfds.features.Text(),
            "image": tfds.features.Image(shape=(32, 32, 3)),
            "label": tfds.features.ClassLabel(num_classes=10),
        }
    )
    version = tfds.builder("cifar10").version
    parts = {
        "train": data.colored_images(256, 32, seed=1),
        "test": data.colored_images(64, 32, seed=2),
    }
    tfds.dataset_builders.store_as_tfds_dataset(
        name="cifar10",
        version=str(version),
        features=features,
        split_datasets={
            name: [
                (number, {"id": f"{name}_{number}", "image": image, "label": label})
                for number, (image, label) in enumerate(images)
            ]
            for name, images in parts.items()
        },
        data_dir=folder,
    )


def _program(name: str, script: Sequence[str], *options: str, **fields: Any) -> Program:
    return Program(
        name=f"simclr-{name}",
        package="",
        environment=_ENVIRONMENT,
        repositories=(_REPOSITORY,),
        command=(
            *script,
            *("--tpu_name=any-name", "--use_tpu=True", "--mode=train_then_eval"),
            *("--train_mode=pretrain", "--dataset=cifar10", "--data_dir={data}"),
            *("--eval_split=test", "--model_dir={model}", "--image_size=32", "--resnet_depth=18"),
            *("--train_batch_size=8", "--eval_batch_size=64", "--use_blur=False"),
            *("--proj_out_dim=16", *options),
        ),
        prepare=_colors,
        checkpoint="checkpoint",
        seconds=1200.0,
        **fields,
    )


PROGRAMS = (
    _program(
        "tf1",
        ("--legacy", "{source}/run.py"),
        # It prints the loss of its first loop of 8 steps, and then of every hundredth step. With
        # these, the loss of a batch of 8 is less a matter of chance.
        *("--train_steps=112", "--checkpoint_steps=8"),
        *("--color_jitter_strength=0", "--temperature=1"),
        loss=r"INFO:tensorflow:loss = ([-+0-9.e]+)",
    ),
    _program(
        "tf2",
        ("{source}/tf2/run.py",),
        *("--train_steps=32", "--checkpoint_steps=8"),
        variables=(("TF_USE_LEGACY_KERAS", "1"),),
        loss=r"train/total_loss = ([-+0-9.e]+)",
        resumed=r"Restoring from \S+ckpt-[1-9]",
    ),
)
