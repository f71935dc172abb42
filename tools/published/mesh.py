"""mesh-tensorflow and what is built on it."""

from __future__ import annotations

import pathlib

from published import data
from published.program import Environment, Program, Repository

MESH = Environment(
    "mesh",
    packages=("future", "gin-config", "six"),
    alone=("mesh-tensorflow==0.1.21",),
)
_REPOSITORY = Repository("tensorflow/mesh", "da907937e68aa421186f1178d71eb5f736fcb069")


def _nothing(folder: pathlib.Path) -> None:
    """Makes no data: the program makes its own."""


PROGRAMS = (
    Program(
        name="mesh-toy-model",
        package="mesh-tensorflow 0.1.21",
        environment=MESH,
        repositories=(_REPOSITORY,),
        command=(
            "--legacy",
            "{source}/examples/toy_model_tpu.py",
            "--tpu=any-name",
            "--mesh_shape=all:{cores}",
            "--layout=hidden_odd:all",
            "--master_dtype=float32",
            "--lr=0.1",
            "--train_steps=400",
            "--iterations=20",
            "--steps_per_checkpoint=100",
            "--model_dir={model}",
        ),
        prepare=_nothing,
        falls=0.9,
        checkpoint="checkpoint",
    ),
    Program(
        name="mesh-mnist",
        package="mesh-tensorflow 0.1.21",
        environment=MESH,
        repositories=(_REPOSITORY,),
        command=(
            "--legacy",
            "{source}/examples/mnist.py",
            "--data_dir={data}",
            "--model_dir={model}",
            "--batch_size=80",
            "--hidden_size=64",
            "--mesh_shape=b1:{cores}",
            "--layout=batch:b1",
            "--train_epochs=6",
        ),
        prepare=data.mnist,
        falls=0.9,
        on_cores=False,
        checkpoint="checkpoint",
    ),
)
