"""Language models of TensorFlow 1: XLNet, and tensor2tensor's transformer."""

from __future__ import annotations

import json
import pathlib

from published import data
from published.program import Environment, Program, Repository

_XLNET = Repository("zihangdai/xlnet", "bbaa3a6fa0b3a2ee694e8cf66167434f9eca9660")
_ENVIRONMENT = Environment(
    "language",
    packages=(
        *("bz2file", "dm-tree", "flask", "future", "gin-config", "google-api-python-client"),
        *("oauth2client", "opencv-python-headless", "pillow", "pypng", "scipy", "sentencepiece"),
        *("six", "sympy", "tensorboard", "tensorflow-datasets", "tensorflow-probability", "tqdm"),
    ),
    alone=(
        *("gym==0.17.3", "kfac", "mesh-tensorflow==0.1.21", "tensor2tensor==1.15.7"),
        *("tensorflow-gan", "tensorflow-hub"),
    ),
)
_LOSS = r"INFO:tensorflow:loss = ([-+0-9.e]+)"
_BATCH, _LENGTH, _REUSED, _PREDICTED = 16, 32, 16, 8


def _permutations(folder: pathlib.Path) -> None:
    """Writes what XLNet's data_utils.py makes of a text."""
    rest = f"bsz-{_BATCH}.seqlen-{_LENGTH}.reuse-{_REUSED}.bi.alpha-6.beta-1.fnp-{_PREDICTED}"
    records = f"train-0-0.{rest}.tfrecords"
    count = data.permuted_sentences(folder / records, _LENGTH, _PREDICTED)
    info = {"num_batch": count // _BATCH, "filenames": [records]}
    (folder / f"record_info-train-0-0.{rest}.json").write_text(json.dumps(info))


def _nothing(folder: pathlib.Path) -> None:
    """Makes no data: the program makes its own."""


PROGRAMS = (
    Program(
        name="xlnet",
        package="",
        environment=_ENVIRONMENT,
        repositories=(_XLNET,),
        command=(
            *("--legacy", "{source}/train.py", "--tpu=any-name", "--num_core_per_host={cores}"),
            *("--record_info_dir={data}", "--model_dir={model}", f"--train_batch_size={_BATCH}"),
            *(f"--seq_len={_LENGTH}", f"--reuse_len={_REUSED}", f"--mem_len={_REUSED}"),
            *(f"--perm_size={_REUSED}", f"--num_predict={_PREDICTED}", "--n_token=100"),
            *("--n_layer=2", "--d_model=32", "--d_embed=32", "--n_head=2", "--d_head=16"),
            *("--d_inner=64", "--learning_rate=0.003", "--train_steps=100", "--iterations=20"),
            "--save_steps=20",
        ),
        prepare=_permutations,
        loss=_LOSS,
        checkpoint="model.ckpt-[1-9]*.index",
    ),
    Program(
        name="t2t-transformer",
        package="tensor2tensor 1.15.7",
        environment=_ENVIRONMENT,
        command=(
            *("--legacy", "-m", "tensor2tensor.bin.t2t_trainer", "--use_tpu"),
            *("--cloud_tpu_name=any-name", "--tpu_num_shards={cores}", "--model=transformer"),
            *("--problem=algorithmic_reverse_binary40", "--hparams_set=transformer_tiny_tpu"),
            "--hparams=batch_size=256,max_length=64,num_hidden_layers=1,hidden_size=32",
            *("--generate_data", "--data_dir={data}", "--tmp_dir={data}", "--output_dir={model}"),
            *("--train_steps=60", "--iterations_per_loop=10", "--eval_steps=2"),
            "--local_eval_frequency=30",
        ),
        prepare=_nothing,
        loss=_LOSS,
        checkpoint="model.ckpt-[1-9]*.index",
        seconds=1200.0,
    ),
)
