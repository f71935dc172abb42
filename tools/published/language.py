"""BERT, ALBERT and ELECTRA, scripts of TensorFlow 1."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from published import data
from published.program import Environment, Program, Repository

_BERT = Repository("google-research/bert", "eedf5716ce1268e56f0a50264a88cafad334ac61")
_ALBERT = Repository("google-research/albert", "b772393d3dae115b493258ce8e37c17b2cc62100")
_ELECTRA = Repository("google-research/electra", "8a46635f32083ada044d7e9ad09604742600ee7b")
_ENVIRONMENT = Environment(
    "language",
    packages=("scikit-learn", "scipy", "sentencepiece", "six", "tensorboard"),
    alone=("tensorflow-hub",),
)
_SEQUENCE, _VOCABULARY = 32, 100
_SIZES = {
    "vocab_size": _VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": _SEQUENCE,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def _pretraining(folder: pathlib.Path) -> None:
    data.masked_sentences(folder / "train.tfrecord", _SEQUENCE)
    sizes = {**_SIZES, "embedding_size": 16, "type_vocab_size": 2}
    (folder / "config.json").write_text(json.dumps(sizes))


def _classifier(folder: pathlib.Path) -> None:
    (folder / "config.json").write_text(json.dumps(_SIZES))
    data.judged_sentences(folder, _VOCABULARY)


def _questions(folder: pathlib.Path) -> None:
    (folder / "config.json").write_text(json.dumps(_SIZES))
    data.questions(folder, _VOCABULARY)


def _electra(folder: pathlib.Path) -> None:
    data.masked_sentences(folder / "train.tfrecord", _SEQUENCE)
    data.vocabulary(folder / "vocab.txt", _VOCABULARY)


def _program(
    name: str, repository: Repository, prepare: Any, *command: str, **fields: Any
) -> Program:
    return Program(
        name=name,
        package="",
        environment=_ENVIRONMENT,
        repositories=(repository,),
        command=("--legacy", *command),
        prepare=prepare,
        **{"checkpoint": "checkpoint", "loss": r"INFO:tensorflow:loss = ([-+0-9.e]+)", **fields},
    )


_ON_CORES = (
    *("--use_tpu", "--tpu_name=any-name", "--num_tpu_cores={cores}", "--output_dir={model}"),
    *("--do_train", f"--max_seq_length={_SEQUENCE}", "--iterations_per_loop=20"),
    *("--train_batch_size=32", "--save_checkpoints_steps=100"),
)
_COMMON = (*_ON_CORES, "--do_eval", "--eval_batch_size=16")
_PRETRAINING = (
    *(*_COMMON, "--input_file={data}/train.tfrecord", f"--max_predictions_per_seq={data.MASKED}"),
    *("--num_train_steps=300", "--num_warmup_steps=10", "--max_eval_steps=4"),
)
_ELECTRA_SETTINGS = {
    "use_tpu": True,
    "tpu_name": "any-name",
    "learning_rate": 0.001,
    "num_train_steps": 200,
    "num_warmup_steps": 10,
    "iterations_per_loop": 20,
    "save_checkpoints_steps": 60,
    "train_batch_size": 32,
    "max_seq_length": _SEQUENCE,
    "vocab_size": _VOCABULARY,
    "embedding_size": 16,
    "model_hparam_overrides": {**_SIZES, "vocab_size": _VOCABULARY},
}


def _electra_settings() -> str:
    """Returns ELECTRA's settings as JSON, with what `str.format` fills in."""
    text = json.dumps(_ELECTRA_SETTINGS).replace("{", "{{").replace("}", "}}")
    own = '"num_tpu_cores": {cores}, "model_dir": "{model}", '
    return text.replace("{{", "{{" + own + '"pretrain_tfrecords": "{data}/train.tfrecord", ', 1)


PROGRAMS = (
    _program(
        "bert-pretraining",
        _BERT,
        _pretraining,
        *("{source}/run_pretraining.py", "--bert_config_file={data}/config.json", *_PRETRAINING),
        "--learning_rate=0.002",
    ),
    _program(
        "bert-classifier",
        _BERT,
        _classifier,
        *("{source}/run_classifier.py", "--bert_config_file={data}/config.json", *_COMMON),
        *("--task_name=CoLA", "--data_dir={data}", "--vocab_file={data}/vocab.txt"),
        *("--do_predict", "--predict_batch_size=16", "--num_train_epochs=40"),
        "--learning_rate=0.001",
    ),
    _program(
        "bert-squad",
        _BERT,
        _questions,
        *("{source}/run_squad.py", "--bert_config_file={data}/config.json", *_ON_CORES),
        *("--vocab_file={data}/vocab.txt", "--train_file={data}/train.json", "--do_predict"),
        *("--predict_file={data}/dev.json", "--predict_batch_size=16", "--num_train_epochs=40"),
        *("--max_query_length=4", "--max_answer_length=4", "--learning_rate=0.001"),
    ),
    _program(
        "albert-pretraining",
        _ALBERT,
        _pretraining,
        *("{source}/run_pretraining.py", "--albert_config_file={data}/config.json", *_PRETRAINING),
        *("--optimizer=adamw", "--learning_rate=0.002"),
        path=("{source}/..",),
    ),
    _program(
        "electra-pretraining",
        _ELECTRA,
        _electra,
        *("{source}/run_pretraining.py", "--data-dir={data}", "--model-name=small"),
        *("--hparams", _electra_settings()),
        # It logs errors only.
        loss=None,
        resumed=r"\b[1-9][0-9]/200 = ",
    ),
)
