"""lingvo."""

from __future__ import annotations

import importlib
import pathlib
from importlib import metadata
from typing import Any

from published import data
from published.program import Environment, Program, Repository

# What the C and C++ libraries with which lingvo was built have, and older ones lack, with what does
# the same there. The last one is never called.
_OLDER_NAMES = {
    "__isoc23_strtol": "strtol",
    "__cxa_call_terminate": "_ZSt9terminatev",
    "_ZSt21ios_base_library_initv": "_ZSt9terminatev",
}
_NEWER_VERSIONS = {"GLIBC_2.38", "GLIBCXX_3.4.32", "CXXABI_1.3.15"}


def fit_to_older_libraries() -> None:
    """Lets lingvo's library of ops load with the C library of Debian 12, 2.36."""
    lief = importlib.import_module("lief")
    [file] = [one for one in metadata.files("lingvo") or () if one.match("ops/x_ops.so")]
    path = str(file.locate())
    library = lief.ELF.parse(path)
    for symbol in library.dynamic_symbols:
        if symbol.name in _OLDER_NAMES:
            symbol.name = _OLDER_NAMES[symbol.name]
            symbol.symbol_version.as_global()
    for needed in library.symbols_version_requirement:
        for version in list(needed.get_auxiliary_symbols()):
            if version.name in _NEWER_VERSIONS:
                needed.remove_aux_requirement(version)
    library.write(path)


# The wheel lacks the models' parameters.
_REPOSITORY = Repository("tensorflow/lingvo", "e0be5dc4ce9b89d91c0be343f54c5d7a5b1bcb59")
_ENVIRONMENT = Environment(
    "lingvo",
    packages=(
        *("attrs", "dill", "etils", "lief", "matplotlib", "pillow", "scikit-learn"),
        *("sentencepiece", "sympy", "tensorboard", "tensorflow-datasets"),
        "tensorflow-probability",
    ),
    alone=(
        *("graph-compression-google-research", "lingvo==0.14.2"),
        *("model-pruning-google-research", "tensorflow-hub", "tensorflow-text=={minor}.*"),
    ),
    finish=fit_to_older_libraries,
)
# lingvo's own models, made small.
_MODELS = """
import pathlib

import numpy as np
from image.params import mnist
from lingvo import model_registry
from lingvo.core import program
from lm.params import synthetic_packed_input


@model_registry.RegisterSingleTaskModel
class LeNet5(mnist.LeNet5):
    path = str(pathlib.Path(__file__).with_name("mnist"))
    train_program, metrics = program.TrainProgram, None

    def Train(self):
        return super().Train().Set(num_samples=640, batch_size=32)

    def Task(self):
        task = super().Task()
        task.train.Set(learning_rate=1e-3, max_steps=200, tpu_steps_per_loop=20)
        task.train.save_interval_seconds = 1
        return task

    def ProgramSchedule(self):
        return program.SimpleProgramScheduleForTask(
            train_dataset_name="Train",
            train_steps_per_loop=20,
            eval_dataset_names=[],
            eval_steps_per_loop=0,
            decode_steps_per_loop=0,
            train_program_cls=self.train_program,
            train_max_metrics=self.metrics,
        )


@model_registry.RegisterSingleTaskModel
class HostDrivenLeNet5(LeNet5):
    train_program, metrics = program.HostDrivenTrainProgram, 4


@model_registry.RegisterSingleTaskModel
class DenseLm(synthetic_packed_input.DenseLmTemplate):
    SEQUENCE_LENGTH, VOCAB_SIZE = 16, 64
    NUM_DEVICES_PER_SPLIT, BATCH_DIM_PER_DEVICE = 2, 4
    HIDDEN_DIM, MODEL_DIM, NUM_HEADS, ATTENTION_KEY_VALUE_DIM = 64, 32, 2, 16
    NUM_TRANSFORMER_LAYERS = 2
    DEVICE_MESH_SHAPE = [1, 2]
    DEVICE_MESH = np.arange(2).reshape(DEVICE_MESH_SHAPE)
    TRAIN_STEPS_PER_LOOP = 10

    def Task(self):
        task = super().Task()
        task.train.Set(max_steps=400, tpu_device_order_mode=2, save_interval_seconds=1)
        task.builder.Set(
            emb_w_split=[-1, 1],
            emb_out_split=[0, -1, 1],
            blm_split=[0, -1, 1],
            logits_split=[0, -1, 1],
        )
        return task
"""


def _models(folder: pathlib.Path) -> None:
    (folder / "tiny_models.py").write_text(_MODELS)
    tf = importlib.import_module("tensorflow")
    tensors: dict[str, Any] = {}
    for name, count, seed in (("train", 640, 1), ("test", 160, 2)):
        images, labels = data.digits(count, seed)
        tensors |= {f"x_{name}": images[..., None], f"y_{name}": labels}
    # As lingvo's own tool saves Keras' files.
    tf.raw_ops.SaveV2(
        prefix=str(folder / "mnist"),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )


def _program(name: str, model: str, job: str, *options: str, **fields: Any) -> Program:
    return Program(
        name=f"lingvo-{name}",
        package="lingvo 0.14.2",
        environment=_ENVIRONMENT,
        command=(
            *("-m", "lingvo.trainer", "--tpu=any-name", f"--model=tiny_models.{model}"),
            *(f"--job={job}", "--logdir={model}", *options),
        ),
        repositories=(_REPOSITORY,),
        prepare=_models,
        path=("{data}", "{source}/lingvo/tasks"),
        # The lingvo in the clone lacks what is built.
        in_source=False,
        **{
            "loss": r"Executing train program at step .*,loss=([-+0-9.e]+)",
            "falls": 0.9,
            "checkpoint": "train/checkpoint",
            "resumed": r"Load from checkpoint \S+ckpt-0*[1-9]",
            **fields,
        },
    )


PROGRAMS = (
    _program(
        "mnist",
        *("LeNet5", "trainer_client", "--disable_tf2=true"),
        loss=r"steps/sec: .* loss:([-+0-9.e]+)",
    ),
    _program("mnist-executor", "LeNet5", "executor_tpu", "--disable_tf2=true"),
    _program(
        "mnist-host-driven",
        *("HostDrivenLeNet5", "host_driven_executor_tpu", "--use_eager"),
        checkpoint="train/ckpt_V2/checkpoint",
        resumed=r"Load from checkpoint \(V2\) \S+ckpt-0*[1-9]",
    ),
    # Each copy of the model is split between two cores.
    _program("lm", "DenseLm", "executor_tpu", "--disable_tf2=true", "--worker_split_size=2"),
)
