"""UDA on images, which compares each unlabelled image with a changed version of it."""

from __future__ import annotations

import pathlib

from published import data
from published.program import Environment, Program, Repository

_LABELLED = 128


def _pairs(folder: pathlib.Path) -> None:
    data.pairs_of_images(folder, _LABELLED)


PROGRAMS = (
    Program(
        name="uda-image",
        package="",
        environment=Environment("uda", packages=("pillow", "six")),
        repositories=(
            Repository("google-research/uda", "960684e363251772a5938451d4d2bc0f1da9e24b"),
        ),
        command=(
            *("--legacy", "{source}/image/main.py", "--use_tpu=True", "--tpu=any-name"),
            *("--data_dir={data}", "--model_dir={model}", "--task_name=cifar10"),
            *(f"--sup_size={_LABELLED}", "--unsup_ratio=1", "--aug_copy=1"),
            *("--train_batch_size=16", "--wrn_size=8"),
            # It prints the loss of every hundredth step.
            *("--train_steps=210", "--iterations=10", "--save_steps=70"),
        ),
        prepare=_pairs,
        loss=r"INFO:tensorflow:loss = ([-+0-9.e]+)",
        checkpoint="checkpoint",
    ),
)
