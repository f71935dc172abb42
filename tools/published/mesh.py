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
T5 = Environment(
    "t5",
    packages=(
        *("babel", "editdistance", "flax", "future", "gin-config", "immutabledict", "jax", "nltk"),
        *("pandas", "pyglove", "rouge-score", "sacrebleu", "scikit-learn", "scipy"),
        # T5's own command needs pkg_resources, and imports its models for PyTorch.
        *("sentencepiece", "setuptools<81", "six", "tensorflow-datasets", "torch", "transformers"),
    ),
    alone=(
        *("clu", "mesh-tensorflow==0.1.21", "seqio==0.0.20", "t5==0.9.4"),
        "tensorflow-text=={minor}.*",
    ),
)
_REPOSITORY = Repository("tensorflow/mesh", "da907937e68aa421186f1178d71eb5f736fcb069")


# The first letters of words, as capitals.
_TASK = """
import numpy as np
import seqio
import tensorflow as tf


def capitals(split, shuffle_files, seed=None):
    letters = np.random.default_rng(0).integers(97, 105, (256, 10)).astype(np.uint8)
    words = [bytes(row).decode() for row in letters]
    pairs = {"inputs": words, "targets": [word.upper()[:5] for word in words]}
    return tf.data.Dataset.from_tensor_slices(pairs)


feature = seqio.Feature(seqio.ByteVocabulary())
seqio.TaskRegistry.add(
    "capitals",
    source=seqio.FunctionDataSource(capitals, splits=["train", "validation"]),
    preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos],
    output_features={"inputs": feature, "targets": feature},
)
"""


def _task(folder: pathlib.Path) -> None:
    (folder / "capitals_task.py").write_text(_TASK)


PROGRAMS = (
    Program(
        name="t5",
        package="t5 0.9.4, mesh-tensorflow 0.1.21",
        environment=T5,
        command=(
            *("--legacy", "-m", "t5.models.mesh_transformer_main"),
            *("--tpu=local", "--model_dir={model}", "--module_import=capitals_task"),
            *("--gin_file=dataset.gin", "--gin_file=models/t5.1.1.tiny.gin"),
            "--gin_file=learning_rate_schedules/constant_0_001.gin",
            "--gin_param=MIXTURE_NAME='capitals'",
            "--gin_param=utils.run.sequence_length={{'inputs':16,'targets':8}}",
            "--gin_param=utils.run.batch_size=('tokens_per_batch',256)",
            "--gin_param=utils.run.mesh_shape='batch:{cores}'",
            "--gin_param=utils.run.layout_rules='batch:batch'",
            "--gin_param=utils.run.train_steps=200",
            "--gin_param=utils.run.iterations_per_loop=20",
            "--gin_param=utils.run.save_checkpoints_steps=40",
        ),
        prepare=_task,
        path=("{data}",),
        falls=0.9,
        checkpoint="checkpoint",
    ),
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
