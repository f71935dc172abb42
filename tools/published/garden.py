"""The TensorFlow Model Garden, official.*, under `distribution_strategy: tpu`."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from published import data
from published.program import Environment, Program

_GARDEN = Environment(
    "garden",
    packages=(
        *(
            "gin-config",
            "immutabledict",
            "matplotlib",
            # Its evaluation turns arrays of one element into numbers.
            "numpy<2.4",
            "opencv-python-headless",
            "pandas",
            "pillow",
        ),
        *("psutil", "py-cpuinfo", "pycocotools", "pyyaml", "sacrebleu", "scipy", "sentencepiece"),
        *("seqeval", "tensorboard", "tensorflow-datasets"),
    ),
    alone=(
        *("tf-models-official==2.20.0", "tensorflow-hub", "tensorflow-model-optimization"),
        *("tensorflow-recommenders", "tensorflow-text=={minor}.*"),
    ),
)
_LOSS = r"'training_loss': np\.float32\(([-+0-9.e]+)\)"
_RESUMED = r"train \| step: +[1-9]\d* \| training until|Loaded checkpoint \S+ckpt-[1-9]"
_SEQUENCE = 32


def _trainer(steps: int, rate: float, optimizer: dict[str, Any]) -> dict[str, Any]:
    """Returns the configuration of a short training with a checkpoint every fifth of it."""
    return {
        "train_steps": steps,
        "steps_per_loop": steps // 5,
        "summary_interval": steps // 5,
        "checkpoint_interval": steps // 5,
        "validation_interval": steps,
        "validation_steps": 2,
        "optimizer_config": {
            "learning_rate": {"type": "constant", "constant": {"learning_rate": rate}},
            "warmup": {"type": "linear", "linear": {"warmup_steps": 2}},
            **optimizer,
        },
    }


def _write(
    folder: pathlib.Path, task: dict[str, Any], trainer: dict[str, Any], **inputs: Any
) -> None:
    """Writes the program's configuration, in which training and validation read the same data."""
    runtime = {"distribution_strategy": "tpu", "tpu": "local"}
    both = {"input_path": str(folder / "*.tfrecord"), "global_batch_size": 16, **inputs}
    task["train_data"] = {**both, "is_training": True}
    task["validation_data"] = {**both, "is_training": False}
    config = {"runtime": runtime, "task": task, "trainer": trainer}
    # JSON is YAML.
    (folder / "config.yaml").write_text(json.dumps(config, indent=2) + "\n")


def _encoder() -> dict[str, Any]:
    sizes = {"vocab_size": 100, "hidden_size": 32, "num_layers": 2, "num_attention_heads": 2}
    limits = {"intermediate_size": 64, "max_position_embeddings": _SEQUENCE, "type_vocab_size": 2}
    without = {"dropout_rate": 0.0, "attention_dropout_rate": 0.0}
    return {"type": "bert", "bert": {**sizes, **limits, **without}}


def _pretraining(folder: pathlib.Path) -> None:
    data.masked_sentences(folder / "train.tfrecord", _SEQUENCE)
    head = {"name": "next_sentence", "num_classes": 2, "inner_dim": 32, "activation": "tanh"}
    task = {"model": {"cls_heads": [head], "encoder": _encoder()}}
    sizes = {"seq_length": _SEQUENCE, "max_predictions_per_seq": data.MASKED}
    _write(folder, task, _trainer(100, 0.003, {}), **sizes)


def _classifier(folder: pathlib.Path) -> None:
    data.labelled_sentences(folder / "train.tfrecord", _SEQUENCE)
    task = {"model": {"num_classes": 2, "encoder": _encoder()}, "init_checkpoint": ""}
    _write(folder, task, _trainer(100, 0.002, {}), seq_length=_SEQUENCE)


def _resnet(folder: pathlib.Path) -> None:
    data.images(folder / "train.tfrecord", 32)
    task = {
        "model": {
            "num_classes": data.COLORS,
            "input_size": [32, 32, 3],
            "backbone": {"type": "resnet", "resnet": {"model_id": 18}},
            # The statistics of a batch are then the same on any number of cores.
            "norm_activation": {"use_sync_bn": True},
        },
        "evaluation": {"top_k": 2},
    }
    _write(folder, task, _trainer(20, 0.01, {}), aug_crop=False, global_batch_size=32)


def _retinanet(folder: pathlib.Path) -> None:
    data.boxes(folder / "train.tfrecord", 64)
    task = {
        "init_checkpoint": "",
        "annotation_file": "",
        "model": {
            "num_classes": data.COLORS + 1,
            "input_size": [64, 64, 3],
            "min_level": 3,
            "max_level": 5,
            "backbone": {"type": "resnet", "resnet": {"model_id": 18}},
            "decoder": {"type": "fpn", "fpn": {"num_filters": 32}},
            "head": {"num_convs": 1, "num_filters": 32},
        },
    }
    _write(folder, task, _trainer(20, 0.01, {}), global_batch_size=8)


def _unet(folder: pathlib.Path) -> None:
    size, channels = [16, 16, 16], 2
    data.volumes(folder / "train.tfrecord", size, channels)
    task = {"model": {"num_classes": 2, "num_channels": channels, "input_size": size}}
    sizes = {"num_classes": 2, "num_channels": channels, "input_size": size}
    _write(folder, task, _trainer(20, 0.05, {}), global_batch_size=8, **sizes)


def _ranking(folder: pathlib.Path) -> None:
    vocabularies = [40, 3, 70, 500]
    data.clicks(folder, vocabularies)
    model = {
        "num_dense_features": data.DENSE_FEATURES,
        "vocab_sizes": vocabularies,
        "embedding_dim": 8,
        "size_threshold": 50,
        "bottom_mlp": [16, 8],
        "top_mlp": [16, 1],
    }
    rates = {"learning_rate": 0.05, "warmup_steps": 2, "decay_steps": 100, "decay_start_steps": 90}
    trainer = {
        "train_steps": 60,
        "steps_per_loop": 10,
        "checkpoint_interval": 20,
        "validation_interval": 20,
        "validation_steps": 2,
        "optimizer_config": {"lr_config": rates, "dense_sgd_config": rates},
    }
    sizes = {"input_path": str(folder / "*.tsv"), "sharding": False}
    _write(folder, {"model": model, "loss": {}}, trainer, global_batch_size=64, **sizes)


def _command(module: str, experiment: str) -> tuple[str, ...]:
    config, mode = "--config_file={data}/config.yaml", "--mode=train_and_eval"
    return ("-m", module, f"--experiment={experiment}", mode, "--model_dir={model}", config)


def _program(name: str, module: str, experiment: str, prepare: Any, **fields: Any) -> Program:
    return Program(
        name=f"garden-{name}",
        package="tf-models-official 2.20.0",
        environment=_GARDEN,
        command=_command(module, experiment),
        prepare=prepare,
        **{"loss": _LOSS, "checkpoint": "checkpoint", "resumed": _RESUMED, **fields},
    )


PROGRAMS = (
    _program("bert-pretraining", "official.nlp.train", "bert/pretraining", _pretraining),
    _program("bert-classifier", "official.nlp.train", "bert/sentence_prediction", _classifier),
    _program("resnet", "official.vision.train", "resnet_imagenet", _resnet),
    _program("retinanet", "official.vision.train", "retinanet_resnetfpn_coco", _retinanet),
    _program("unet3d", "official.projects.volumetric_models.train", "seg_unet3d_test", _unet),
    _program(
        "dlrm",
        "official.recommendation.ranking.train",
        "dlrm_criteo",
        _ranking,
        variables=(("TF_USE_LEGACY_KERAS", "1"),),
        loss=r" loss: ([-+0-9.e]+)",
    ),
)
