"""A compilation that takes long says so on stderr."""

from __future__ import annotations

import re
from typing import Any

import pytest

_PROGRAM = """
    import tensorflow as tf
    import tf_tpu_ext
    from tf_tpu_ext import _faults

    @tf.function(jit_compile=True)
    def doubled(x):
        return 2 * x

    _faults.arm("compilation", stall_seconds={seconds})
    with tf.device("TPU:0"):
        print(doubled(tf.constant(21)).numpy())
"""


@pytest.mark.parametrize(
    ("seconds", "level", "told"), [(2.5, "0", True), (0.1, "0", False), (2.5, "1", False)]
)
def test_tells_name_and_size_once(run_python: Any, seconds: float, level: str, told: bool) -> None:
    done = run_python(_PROGRAM.format(seconds=seconds), env={"TF_CPP_MIN_LOG_LEVEL": level})
    assert done.stdout == "42\n"
    lines = [line for line in done.stderr.splitlines() if line.startswith("tf_tpu_ext: compiling")]
    if not told:
        assert lines == []
        return
    begin, end = lines
    assert re.fullmatch(r"tf_tpu_ext: compiling \S*doubled\S* \(\d+ instructions\) \.\.\.", begin)
    took = re.fullmatch(r"tf_tpu_ext: compiling \S*doubled\S* .* took ([\d.]+) s", end)
    assert took is not None, end
    assert float(took[1]) >= 2.5
