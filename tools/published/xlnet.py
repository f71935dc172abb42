"""XLNet, scripts of TensorFlow 1; the one for pretraining has a copy of TPUEstimator."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from published import data
from published.program import Environment, Program, Repository

_XLNET = Repository("zihangdai/xlnet", "bbaa3a6fa0b3a2ee694e8cf66167434f9eca9660")
_ENVIRONMENT = Environment("xlnet", packages=("sentencepiece", "six", "tensorboard"))
_SEQUENCE, _REUSED, _PREDICTED, _BATCH = 32, 16, 8, 16
_SIZES = {"n_layer": 2, "d_model": 32, "n_head": 2, "d_head": 16, "d_inner": 64}
_TOKENS = 100


def _pretraining(folder: pathlib.Path) -> None:
    data.streams(folder, _SEQUENCE, _REUSED, _PREDICTED, _BATCH)


def _classifier(folder: pathlib.Path) -> None:
    data.reviews(folder, _TOKENS)
    _sizes(folder)


def _race(folder: pathlib.Path) -> None:
    data.exams(folder, _TOKENS)
    _sizes(folder)


def _sizes(folder: pathlib.Path) -> None:
    sizes = {**_SIZES, "ff_activation": "gelu", "untie_r": True, "n_token": _TOKENS}
    (folder / "config.json").write_text(json.dumps(sizes))


def _program(name: str, prepare: Any, *command: str, **fields: Any) -> Program:
    return Program(
        name=f"xlnet-{name}",
        package="",
        environment=_ENVIRONMENT,
        repositories=(_XLNET,),
        command=(
            *("--legacy", *command, "--use_tpu", "--tpu=any-name", "--num_core_per_host={cores}"),
            *("--model_dir={model}", f"--train_batch_size={_BATCH}", "--iterations=10"),
            *("--save_steps=20", "--learning_rate=0.002"),
        ),
        prepare=prepare,
        checkpoint="checkpoint",
        # They log some steps and the last one.
        loss=r"INFO:tensorflow:(?:loss =|Loss for final step:) (\d+\.\d+)",
        **fields,
    )


PROGRAMS = (
    # Its vocabulary has 32000 tokens, whatever the data has.
    _program(
        "pretraining",
        _pretraining,
        *("{source}/train.py", "--record_info_dir={data}", f"--mem_len={_REUSED}"),
        *(f"--seq_len={_SEQUENCE}", f"--reuse_len={_REUSED}", f"--perm_size={_REUSED}"),
        *(f"--num_predict={_PREDICTED}", "--nobi_data", "--train_steps=60", "--d_embed=32"),
        *(f"--{name}={size}" for name, size in _SIZES.items()),
        *("--untie_r", "--ff_activation=gelu"),
        seconds=1200.0,
    ),
    _program(
        "classifier",
        _classifier,
        *("{source}/run_classifier.py", "--do_train", "--do_eval", "--do_predict"),
        *("--task_name=imdb", "--data_dir={data}", "--output_dir={model}"),
        *("--predict_dir={model}", "--spiece_model_file={data}/spiece.model"),
        *("--model_config_path={data}/config.json", f"--max_seq_length={_SEQUENCE}"),
        *("--eval_batch_size=16", "--predict_batch_size=16", "--train_steps=200"),
        *("--dropout=0", "--dropatt=0"),
    ),
    _program(
        "race",
        _race,
        *("{source}/run_race.py", "--do_train", "--do_eval", "--data_dir={data}"),
        *("--output_dir={model}", "--spiece_model_file={data}/spiece.model"),
        *("--model_config_path={data}/config.json", f"--max_seq_length={_SEQUENCE}"),
        *("--max_qa_length=8", "--eval_batch_size=8", "--train_steps=200"),
        *("--dropout=0", "--dropatt=0"),
    ),
)
