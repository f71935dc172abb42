"""Errors, deaths, stalls and Ctrl-C: a pipeline ends in an error, and its processes end."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest
from pipeline_processes import servers_of, wait_until

import tf_tpu_ext.io  # before TensorFlow's first operation

import tensorflow as tf  # isort: skip

ENDLESS = """
    def make():
        return tf.data.Dataset.range(1 << 40)
"""
STUCK = """
    import time

    def wait(number):
        if number >= 3:
            time.sleep(600)
        return number

    def make():
        def map_one(number):
            return tf.numpy_function(wait, [number], tf.int64)
        return tf.data.Dataset.range(100).map(map_one)
"""


@pytest.fixture
def wait_limit() -> Iterator[Callable[[float], None]]:
    """Sets the wait limit, for what comes after the start of a process."""
    before = tf_tpu_ext.machine().wait_limit_seconds
    yield lambda seconds: tf_tpu_ext.configure(wait_limit_seconds=seconds)
    tf_tpu_ext.configure(wait_limit_seconds=before)


def test_an_error_of_the_function_has_its_traceback(pipeline):
    with pytest.raises(tf_tpu_ext.io.PipelineError) as error:
        pipeline("def make():\n    return [][7]\n")
    assert "IndexError: list index out of range" in str(error.value)
    assert "pipeline.py" in str(error.value)


def test_an_error_of_an_element_names_the_line(pipeline):
    code = """
        def make():
            def divide(number):
                return 12 // (number - 2)
            return tf.data.Dataset.range(5).map(divide)
    """
    got: list[int] = []
    with pytest.raises(tf.errors.OpError) as error:
        got.extend(int(element) for element in pipeline(code))
    assert got == [-6, -12]
    assert "ivision by zero" in str(error.value)
    assert "return 12 // (number - 2)" in str(error.value)


def test_a_process_that_dies_ends_the_wait(pipeline):
    elements = iter(pipeline(STUCK))
    assert int(next(elements)) == 0
    (server,) = servers_of(os.getpid())
    os.kill(server, signal.SIGKILL)
    with pytest.raises(tf.errors.OpError, match="SIGKILL"):
        list(elements)


def test_a_process_that_stalls_ends_at_the_wait_limit(pipeline, wait_limit):
    elements = iter(pipeline(STUCK))
    assert int(next(elements)) == 0
    wait_limit(3)
    with pytest.raises(tf.errors.OpError, match="no element within the wait limit of 3 s"):
        list(elements)


def test_a_stopped_process_ends_at_the_wait_limit(pipeline, wait_limit):
    elements = iter(pipeline(ENDLESS))
    assert int(next(elements)) == 0
    (server,) = servers_of(os.getpid())
    os.kill(server, signal.SIGSTOP)
    wait_limit(3)
    with pytest.raises(tf.errors.OpError, match="wait limit"):
        list(elements)


def test_a_function_that_does_not_return_ends_at_the_wait_limit(pipeline, wait_limit):
    code = """
        import time

        def make():
            time.sleep(600)
    """
    wait_limit(3)
    with pytest.raises(tf_tpu_ext.io.PipelineError, match="not ready after the wait limit"):
        pipeline(code)


@pytest.fixture
def program(tmp_path, io_environment) -> Iterator[subprocess.Popen[str]]:
    """A program that waits for an element which does not come."""
    del io_environment
    (tmp_path / "stuck.py").write_text("import tensorflow as tf\n" + textwrap.dedent(STUCK))
    code = f"""
        import tf_tpu_ext.io

        for number in tf_tpu_ext.io.dataset({str(tmp_path / "stuck.py")!r} + ":make"):
            print(int(number), flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


def _wait_for_its_last_element(program: subprocess.Popen[str]) -> list[int]:
    assert program.stdout is not None
    assert [int(program.stdout.readline()) for _ in range(3)] == [0, 1, 2]
    servers = servers_of(program.pid)
    assert servers
    return servers


def _have_ended(processes: list[int]) -> bool:
    return not any(pathlib.Path(f"/proc/{process}").exists() for process in processes)


def test_ctrl_c_ends_the_wait_and_the_processes(program):
    servers = _wait_for_its_last_element(program)
    program.send_signal(signal.SIGINT)
    _, printed = program.communicate(timeout=60)
    assert program.returncode != 0
    assert "KeyboardInterrupt" in printed or "Ctrl-C ended the iteration" in printed
    wait_until(lambda: _have_ended(servers))


def test_processes_end_with_a_program_that_is_killed(program):
    servers = _wait_for_its_last_element(program)
    program.kill()
    wait_until(lambda: _have_ended(servers))


def test_without_the_environment_the_error_says_how_to_make_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TF_TPU_EXT_IO_FOLDER", str(tmp_path / "none"))
    with pytest.raises(tf_tpu_ext.io.MissingEnvironmentError, match="tf-tpu io setup"):
        tf_tpu_ext.io.dataset("pipeline.py:make")
