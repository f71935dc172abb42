"""Scripts that `tf-tpu run` starts: with pipelines, and with functions that have to run there."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import textwrap
from typing import Any

import pytest
from imported_processes import tf_tpu

from tf_tpu_ext.launcher import _imports

needs_estimator = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow_estimator") is None
    or importlib.util.find_spec("tf_keras") is None,
    reason="tensorflow-estimator or tf_keras is not installed",
)

DATA = """
    import tensorflow as tf
    import tensorflow_io as tfio

    FACTOR = 2

    def match(word):
        return tf.cast(tfio.experimental.text.re2_full_match(word, "t.*")[0], tf.int32) * FACTOR

    def make(words, batch):
        return tf.data.Dataset.from_tensor_slices(words).map(match).batch(batch)
"""
# Its own function, one of a module, and what can't be moved.
SCRIPT = """
    import tensorflow as tf
    import tensorflow_io as tfio
    import data
    from data import make

    def own(words):
        words = tf.data.Dataset.from_tensor_slices(words)
        return words.map(lambda word: tfio.experimental.text.re2_full_match(word, "t.*")[0])

    def show(dataset):
        element = dataset.make_one_shot_iterator().get_next()
        with tf.Session() as session:
            print(session.run(element).tolist())

    def main(_):
        show(make(["tpu", "cpu", "towers"], batch=3))
        show(own(["tpu"]))
        try:
            make(["tpu"], batch=tf.constant(1, tf.int64))
        except NotImplementedError as error:
            print(error)
        data.FACTOR = 3
        try:
            make(["tpu"], batch=1)
        except NotImplementedError as error:
            print(error)
        tfio.experimental.text.re2_full_match("a", "b")

    if __name__ == "__main__":
        tf.app.run()
"""


PIPELINE = """
    import tensorflow as tf
    import tensorflow_io as tfio

    def make(words):
        match = tfio.experimental.text.re2_full_match
        words = tf.data.Dataset.from_tensor_slices(words)
        return words.map(lambda word: tf.cast(match(word, "t.*")[0], tf.int32)).repeat()
"""
TPU_SCRIPT = """
    import tensorflow as tf
    import tf_tpu_ext.io

    strategy = tf.distribute.TPUStrategy(tf.distribute.cluster_resolver.TPUClusterResolver("old"))
    matches = tf_tpu_ext.io.dataset("pipeline.py:make", ["tpu", "cpu", "towers", "x"])
    batches = iter(strategy.experimental_distribute_dataset(matches.batch(8, drop_remainder=True)))

    @tf.function
    def step(batch):
        return strategy.reduce("SUM", strategy.run(tf.reduce_sum, args=(batch,)), axis=None)

    print(strategy.num_replicas_in_sync, [int(step(next(batches))) for _ in range(3)])
"""


def run(folder: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return tf_tpu("run", *arguments, env=environment, timeout=200, cwd=folder)


def test_a_script_reads_by_a_pipeline(io_environment: Any, tmp_path: pathlib.Path) -> None:
    del io_environment
    (tmp_path / "pipeline.py").write_text(textwrap.dedent(PIPELINE))
    (tmp_path / "script.py").write_text(textwrap.dedent(TPU_SCRIPT))
    done = run(tmp_path, "--cores=8", "script.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "8 [4, 4, 4]\n"


@needs_estimator
def test_functions_of_a_script_and_of_its_modules_run_there(io_environment: Any, tmp_path) -> None:
    del io_environment
    (tmp_path / "data.py").write_text(textwrap.dedent(DATA))
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    done = run(tmp_path, "--legacy", "--cores=2", "script.py")
    assert done.returncode == 1
    assert "script.py:main needs native ops" in done.stderr
    assert "it returns no dataset" in done.stderr
    first, own, argument, changed = done.stdout.splitlines()
    assert first == "[2, 0, 2]"
    assert own == "True"
    assert "data.py:make needs native ops" in argument
    assert "argument batch is a" in argument
    assert "Move the pipeline" in argument
    assert "FACTOR of the module has changed since its import" in changed
    assert f"{tmp_path}/data.py:make runs where" in done.stderr


@pytest.mark.parametrize(
    ("code", "effect"),
    [
        ("import os\nA = [1, 2]\nB = os.path.join('a', 'b')\ndef f(x=3):\n    print(x)", ""),
        ("class C:\n    x = 3\n    def f(self):\n        print(self)", ""),
        ("if __name__ == '__main__':\n    main()", ""),
        ("flags.DEFINE_string('a', '', '')", "line 1, calls flags.DEFINE_string at import"),
        ("x = 1\nif x:\n    open('a')", "line 3, calls open at import"),
        ("class C:\n    open('a')", "line 2, calls open at import"),
        ("@register\ndef f():\n    pass", ""),
        ("@register('a')\ndef f():\n    pass", "calls register at import"),
        ("def f(x=load()):\n    pass", "calls load at import"),
        ("FOLDER['a'] = 3", ""),
    ],
)
def test_what_a_module_does_at_import(tmp_path: pathlib.Path, code: str, effect: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(code)
    found = _imports.side_effect({"__name__": "module", "__file__": str(path)})
    assert effect in found
    assert bool(found) == bool(effect)
