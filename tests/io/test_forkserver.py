"""The process that imports TensorFlow for pipelines, whose processes are copies of it."""

from __future__ import annotations

import gc
import os
import pathlib
import signal

import numpy as np
import pytest
from pipeline_processes import forkservers_of, servers_of, wait_until

import tf_tpu_ext.io
from tf_tpu_ext.io import _forkserver

RANDOM = """
import random
import numpy as np

def make():
    values = [random.random(), np.random.rand()]
    return tf.data.Dataset.from_tensors(tf.constant(values, tf.float64))
"""
RANGE = """
def make():
    return tf.data.Dataset.range(3)
"""


@pytest.fixture
def new_forkserver(monkeypatch):
    """An environment variable that no forkserver has yet."""
    monkeypatch.setenv("TF_TPU_EXT_TEST_OF_FORKSERVERS", os.urandom(8).hex())
    return monkeypatch


def test_all_pipelines_are_copies_of_one_process(pipeline):
    first = pipeline(RANGE)
    (forkserver,) = forkservers_of(os.getpid())
    second = pipeline(RANGE)
    assert forkservers_of(os.getpid()) == [forkserver]
    assert len(servers_of(os.getpid())) == 2
    assert list(first.as_numpy_iterator()) == list(second.as_numpy_iterator()) == [0, 1, 2]


def test_copies_have_random_numbers_of_their_own(pipeline):
    drawn = [next(pipeline(RANDOM).as_numpy_iterator()) for _ in range(2)]
    assert np.all(drawn[0] != drawn[1])


def test_copies_begin_in_the_current_folder(pipeline, tmp_path, monkeypatch):
    code = "import os\ndef make():\n    return tf.data.Dataset.from_tensors(os.getcwd())\n"
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        assert next(pipeline(code).as_numpy_iterator()) == os.fsencode(folder)


def test_another_environment_has_another_process(pipeline, new_forkserver):
    del new_forkserver
    before = forkservers_of(os.getpid())
    assert list(pipeline(RANGE).as_numpy_iterator()) == [0, 1, 2]
    # The one before does nothing any more.
    wait_until(lambda: len(forkservers_of(os.getpid())) == 1)
    assert forkservers_of(os.getpid()) != before


def test_a_killed_one_ends_its_pipelines_and_is_replaced(pipeline, new_forkserver):
    del new_forkserver
    endless = pipeline("def make():\n    return tf.data.Dataset.range(2).repeat()\n")
    elements = iter(endless)
    next(elements)
    wait_until(lambda: len(forkservers_of(os.getpid())) == 1)
    (killed,) = forkservers_of(os.getpid())
    os.kill(killed, signal.SIGKILL)
    with pytest.raises(Exception, match="ended by SIGKILL"):
        for _ in elements:
            pass
    assert list(pipeline(RANGE).as_numpy_iterator()) == [0, 1, 2]
    assert killed not in forkservers_of(os.getpid())


def test_it_ends_when_nothing_needs_it(pipeline, new_forkserver):
    new_forkserver.setattr(_forkserver, "_IDLE_SECONDS", 0.2)
    dataset = pipeline(RANGE)
    assert list(dataset.as_numpy_iterator()) == [0, 1, 2]
    assert forkservers_of(os.getpid())
    del dataset
    wait_until(lambda: (gc.collect(), not forkservers_of(os.getpid()))[1])


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise ImportError('no such luck')", "no such luck"),
        ("import os; print('last words', file=sys.stderr, flush=True); os.abort()", "last words"),
    ],
)
def test_a_tensorflow_that_does_not_load(pipeline, tmp_path, monkeypatch, code, message):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "tensorflow.py").write_text(f"import sys\n{code}\n")
    monkeypatch.setenv("PYTHONPATH", str(broken))
    with pytest.raises(tf_tpu_ext.io.PipelineError, match=message):
        pipeline(RANGE)


def test_an_interpreter_that_does_not_start(tmp_path: pathlib.Path):
    fake = tmp_path / "python"
    fake.write_text("no program\n")
    fake.chmod(0o755)
    with pytest.raises(tf_tpu_ext.io.PipelineError, match="can't be started"):
        tf_tpu_ext.io.dataset("pipeline.py:make", python=str(fake))
