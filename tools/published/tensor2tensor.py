"""tensor2tensor's transformer."""

from __future__ import annotations

from published.program import Environment, Program

_ENVIRONMENT = Environment(
    "tensor2tensor",
    packages=(
        *("bz2file", "dm-tree", "flask", "future", "gin-config", "google-api-python-client"),
        *("oauth2client", "opencv-python-headless", "pillow", "pypng", "scipy"),
        *("six", "sympy", "tensorboard", "tensorflow-datasets", "tensorflow-probability", "tqdm"),
    ),
    alone=(
        *("gym==0.17.3", "kfac", "mesh-tensorflow==0.1.21", "tensor2tensor==1.15.7"),
        *("tensorflow-gan", "tensorflow-hub"),
    ),
)
_LOSS = r"INFO:tensorflow:loss = ([-+0-9.e]+)"

PROGRAMS = (
    Program(
        name="t2t-transformer",
        package="tensor2tensor 1.15.7",
        environment=_ENVIRONMENT,
        command=(
            *("--legacy", "-m", "tensor2tensor.bin.t2t_trainer", "--use_tpu"),
            *("--cloud_tpu_name=any-name", "--tpu_num_shards={cores}", "--model=transformer"),
            *("--problem=algorithmic_reverse_decimal40", "--hparams_set=transformer_tiny_tpu"),
            "--hparams=batch_size=32,max_length=64,num_hidden_layers=1,hidden_size=32,"
            "learning_rate_warmup_steps=20",
            *("--generate_data", "--data_dir={data}", "--tmp_dir={data}", "--output_dir={model}"),
            *("--train_steps=60", "--iterations_per_loop=10", "--eval_steps=2"),
            *("--local_eval_frequency=30", "--log_step_count_steps=10"),
        ),
        loss=_LOSS,
        checkpoint="checkpoint",
        seconds=1200.0,
    ),
)
