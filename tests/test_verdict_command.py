"""`tf-tpu check` and `pytest --tpu-target`: guards of TPU code where there is no TPU."""

from __future__ import annotations

import json
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys

import pytest
from imported_processes import CLI
from verdicts import (  # noqa: F401
    HAS_LIBTPU,
    PYTEST,
    needs_libtpu,
    own_cache,
    tf_tpu_check,
)

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "fitting_encoder.py"

TESTS = """
import pytest
import tensorflow as tf
import tf_tpu_ext

tf_tpu_ext.tpu.rewrite(tf.sin, [tf.ones([8])])

@pytest.fixture
def refused():
    return tf_tpu_ext.tpu.rewrite(lambda x: tf.signal.fft(tf.cast(x, tf.complex128)), [tf.ones(8)])

def test_that_fits():
    tf_tpu_ext.tpu.rewrite(tf.exp, [tf.ones([8])])

def test_of_a_refused_program():
    tf_tpu_ext.tpu.rewrite(lambda x: tf.signal.ifft(tf.cast(x, tf.complex128)), [tf.ones(8)])

def test_after_a_refused_fixture(refused):
    pass

def test_without_programs():
    pass

def test_that_fails_itself():
    tf_tpu_ext.tpu.rewrite(lambda x: tf.signal.fft(tf.cast(x, tf.complex128)), [tf.ones(16)])
    assert tf.config.list_logical_devices("TPU") == []
"""


def run_pytest(folder: pathlib.Path, code: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_programs.py").write_text(code)
    return subprocess.run(
        [
            *(*PYTEST, "-p", "no:cacheprovider"),
            *("-W", "ignore", "--rootdir", str(folder), *options, "test_programs.py"),
        ],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ['PYTHONPATH']}"},
        capture_output=True,
        text=True,
        timeout=200,
        cwd=folder,
    )


@needs_libtpu
def test_pytest_names_the_tests_of_programs_that_fail(tmp_path):
    done = run_pytest(tmp_path, TESTS, "--tpu-target=v5e-8")
    assert done.returncode == 1, done.stdout + done.stderr
    told = re.findall(r"^(FAILED|ERROR) test_programs.py::(\w+)(?: - (.*))?$", done.stdout, re.M)
    named = [(how, test) for how, test, _ in told]
    assert named == [
        ("FAILED", "test_of_a_refused_program"),
        ("FAILED", "test_after_a_refused_fixture"),
        ("FAILED", "test_that_fails_itself"),
        ("ERROR", "test_that_fails_itself"),
    ], done.stdout
    assert "on v5e-8: refused" in done.stdout
    assert f"op IFFT at {tmp_path}/test_programs.py:16" in done.stdout
    assert "Use complex64." in done.stdout
    assert "programs on v5e-8" in done.stdout
    assert "2 of 5 compile and fit" in done.stdout


@needs_libtpu
def test_pytest_fails_the_run_for_programs_outside_of_tests(tmp_path):
    code = TESTS.partition("@pytest")[0].replace("tf.sin", "lambda x: tf.cast(x, tf.float64)")
    code = code.replace("tf.cast(x, tf.float64)", "tf.signal.fft(tf.cast(x, tf.complex128))")
    done = run_pytest(tmp_path, f"{code}\ndef test_nothing(): pass\n", "--tpu-target=v5e-8")
    # The program belongs to the first test that comes after it.
    assert done.returncode == 1, done.stdout + done.stderr
    assert "test_nothing" in done.stdout
    assert "1 failed" in done.stdout


def test_pytest_that_can_not_start(tmp_path):
    done = run_pytest(tmp_path, "def test(): pass", "--tpu-target=v5e-7")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout + done.stderr
    expected = "There is no TPU slice v5e-7" if HAS_LIBTPU else "pip install libtpu"
    assert expected in done.stderr


def test_pytest_without_the_option_imports_no_tensorflow(tmp_path):
    code = "import sys\ndef test(): assert 'tensorflow' not in sys.modules"
    done = run_pytest(tmp_path, code)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_libtpu
def test_the_walk_of_the_page(tmp_path):
    """The example does not fit, and the changes of the page make it fit."""
    page = (ROOT / "docs" / "verdict.md").read_text()
    walk = page[page.index("## A model that does not fit") :]
    commands = re.findall(r"^tf-tpu check (.*) examples/fitting_encoder.py ?(.*)$", walk, re.M)
    assert [options for _, options in commands] == ["", "--bfloat16 --recompute"]
    answers = []
    for before, after in commands:
        report = tmp_path / "verdicts.json"
        options = [*before.split(), "--json", str(report), str(EXAMPLE), *after.split()]
        done = tf_tpu_check(ROOT, *options, "--steps=1")
        [verdict] = [
            verdict for verdict in json.loads(report.read_text()) if "step" in verdict["program"]
        ]
        answers.append(verdict["answer"])
        assert done.returncode == (0 if verdict["ok"] else 1), done.stderr
        assert "step 0: loss 0.0000" in done.stdout
        if not verdict["ok"]:
            lines = {buffer["source"] for buffer in verdict["largest"]}
            assert any(line.startswith(str(EXAMPLE)) for line in lines), verdict["largest"]
    assert answers == ["out of memory", "fits"]


SCRIPT = """
import sys
import tensorflow as tf
{import_legacy}
print("arguments", sys.argv[1:])
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    x = tf.ones([8])
    [y] = tf.compat.v1.tpu.rewrite(lambda x: {computation}, [x])
    session.run(tf.compat.v1.tpu.initialize_system())
    session.run(y)
"""


@needs_libtpu
def test_a_module_of_tensorflow_1_that_is_refused(tmp_path):
    code = SCRIPT.format(
        import_legacy="assert tf.placeholder",
        computation="tf.abs(tf.fft(tf.cast(x, tf.complex128)))",
    )
    (tmp_path / "train.py").write_text(code)
    done = tf_tpu_check(tmp_path, "--target", "v5e-1", "--legacy", "-m", "train", "--rate=1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["arguments ['--rate=1']"]
    assert "v5e-1: 0 of 1 programs compile and fit" in done.stderr
    assert re.search(r"op FFT at .*train\.py:8\n", done.stderr), done.stderr


@needs_libtpu
def test_a_terminal_shows_what_is_asked(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT.format(import_legacy="", computation="tf.tan(x)"))
    ours, theirs = pty.openpty()
    command = [sys.executable, str(CLI), "check", "--target", "v5e-1", "train.py"]
    with subprocess.Popen(command, stderr=theirs, stdout=subprocess.PIPE, cwd=tmp_path) as process:
        os.close(theirs)
        written = b""
        try:
            while data := os.read(ours, 4096):
                written += data
        except OSError:
            pass  # the other end is closed
        os.close(ours)
        assert process.wait(100) == 0, written
    text = written.decode()
    asking = text.index("\rtf-tpu check: asking the compiler of v5e-1 about ")
    # The line is gone before the table.
    assert asking < text.index(f"\r{'':100}\r") < text.index("v5e-1: 1 of 1 programs")


# Reports to a file whoever asks for an address or connects, unless it is within the machine.
WATCH = r"""
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
static void tell(const char* what) {
  FILE* file = fopen(getenv("WATCH_FILE"), "a");
  fprintf(file, "%s\n", what);
  fclose(file);
}
extern "C" int connect(int socket, const struct sockaddr* address, socklen_t size) {
  if (address->sa_family != AF_UNIX) tell("connect");
  return ((int (*)(int, const struct sockaddr*, socklen_t))dlsym(RTLD_NEXT, "connect"))(
      socket, address, size);
}
extern "C" int getaddrinfo(const char* node, const char* service, const struct addrinfo* hints,
                           struct addrinfo** found) {
  if (node != nullptr) tell(node);
  return ((int (*)(const char*, const char*, const struct addrinfo*, struct addrinfo**))dlsym(
      RTLD_NEXT, "getaddrinfo"))(node, service, hints, found);
}
"""


@needs_libtpu
def test_no_network_is_touched(tmp_path, monkeypatch):
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    (tmp_path / "watch.cc").write_text(WATCH)
    library = tmp_path / "watch.so"
    command = [compiler, "-shared", "-fPIC", "-o", library, tmp_path / "watch.cc", "-ldl"]
    subprocess.run(command, check=True, timeout=100)
    told = tmp_path / "told"
    monkeypatch.setenv("WATCH_FILE", str(told))
    monkeypatch.setenv("LD_PRELOAD", str(library))
    look_up = "import socket; socket.getaddrinfo('localhost', 1)"
    subprocess.run([sys.executable, "-c", look_up], check=True, timeout=60)
    assert told.read_text() == "localhost\n"
    told.unlink()
    (tmp_path / "train.py").write_text(SCRIPT.format(import_legacy="", computation="tf.asin(x)"))
    done = tf_tpu_check(tmp_path, "--target", "v5e-4", "train.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert not told.exists(), told.read_text()
