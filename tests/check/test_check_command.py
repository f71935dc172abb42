"""`tf-tpu check`."""

from __future__ import annotations

import json
import pathlib
import subprocess

import imported_processes
import pytest

SCRIPT = """
import sys
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
tf.config.experimental_connect_to_cluster(resolver)
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)

@tf.function
def run(x):
    return strategy.run(lambda x: tf.math.log(x), args=(x,))

if sys.argv[1] != "nothing":
    run(tf.constant(float(sys.argv[1])))
"""


def check(folder: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(SCRIPT)
    return imported_processes.tf_tpu("check", *arguments, cwd=folder, timeout=280)


def test_finding(tmp_path):
    done = check(tmp_path, "--json", "found.json", "script.py", "-1.0")
    assert done.returncode == 1, done.stderr
    assert "1 finding in 1 checked steps" in done.stderr
    assert "Log (script.py:12) makes NaN" in done.stderr.replace(f"{tmp_path}/", "")
    [found] = json.loads((tmp_path / "found.json").read_text())
    assert found["kind"] == "nan"
    assert found["on_a_tpu"].startswith("A TPU computes NaN")


def test_page(tmp_path):
    pytest.importorskip("jinja2")
    done = check(tmp_path, "--report", "out.html", "script.py", "-1.0")
    assert done.returncode == 1, done.stderr
    page = (tmp_path / "out.html").read_text()
    assert "What the checks have found" in page
    assert "makes NaN of finite numbers" in page


def test_nothing_found(tmp_path):
    done = check(tmp_path, "--seed", "7", "script.py", "1.0")
    assert done.returncode == 0, done.stderr
    assert "0 findings in 1 checked steps" in done.stderr


def test_nothing_watched(tmp_path):
    done = check(tmp_path, "script.py", "nothing")
    assert done.returncode == 1
    assert "so nothing was checked" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [("missing.py",), ("--compile-only", "script.py"), ("--seed", "-1", "script.py")],
)
def test_refused(tmp_path, arguments):
    done = check(tmp_path, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("tf-tpu check: ")
