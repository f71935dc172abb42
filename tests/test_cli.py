"""`tf-tpu doctor`: a healthy installation, broken ones, and what it says about them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import types

import numpy as np
import pytest
import tensorflow as tf

import tf_tpu_command
import tf_tpu_ext
from tf_tpu_ext import _library
from tf_tpu_ext.cli import doctor, main

PACKAGE = pathlib.Path(tf_tpu_ext.__file__).parent
# To try tensorflow-io's ops there takes seconds; test_the_environment_of_pipelines has its own.
WITHOUT_PIPELINES = {"TF_TPU_EXT_IO_FOLDER": "/nowhere"}


def run_command(*arguments, package=PACKAGE, env=None, timeout=280):
    """Runs `tf-tpu` of a package, whether or not that package can be imported."""
    environment = {**os.environ, **WITHOUT_PIPELINES, **(env or {})}
    # The package under test must be found by its own place.
    environment.pop("PYTHONPATH", None)
    return subprocess.run(
        [sys.executable, str(package / "cli"), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=pathlib.Path(__file__).parent,
    )


def run_installed(*arguments, folder, timeout=280):
    """Runs `tf-tpu` as its entry point does, where Python finds modules in `folder` first."""
    code = (
        "import sys, tf_tpu_command\n"
        "try:\n    code = tf_tpu_command.main()\n"
        "finally:\n    assert 'tf_tpu_ext' not in sys.modules\n"
        "sys.exit(code)"
    )
    path = os.pathsep.join([str(folder), str(pathlib.Path(tf_tpu_command.__file__).parent)])
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **WITHOUT_PIPELINES, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=folder,
    )


def report(done):
    """The JSON report of a run, as a dictionary of checks by name."""
    shown = json.loads(done.stdout)
    assert set(shown) == {"ok", "checks"}
    assert shown["ok"] == (done.returncode == 0)
    return {check["name"]: types.SimpleNamespace(**check) for check in shown["checks"]}


@pytest.fixture
def copy(tmp_path):
    """A copy of the package to break, without its library."""
    package = tmp_path / "tf_tpu_ext"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return package


def add_library(package):
    library = tf_tpu_ext._native.library_file()
    (package / library.path.name).symlink_to(library.path)
    (package / "_built_for.py").write_text(f'TF_VERSION = "{library.version}"\n')


def test_healthy_machine_of_two_cores():
    done = run_command("doctor", "--json", "--cores", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    checks = report(done)
    assert not [name for name, check in checks.items() if check.status == "failed"]
    assert tf.__version__ in checks["TensorFlow"].found
    assert f"built for {tf.__version__}" in checks["TensorFlow"].found
    assert checks["numpy"].found == np.__version__
    assert checks["library"].found == f"loaded; built for TensorFlow {tf.__version__}"
    assert "2 cores, /device:TPU:0 to /device:TPU:1; mesh 1 x 1 x 1 x 2" in checks["devices"].found
    for step in ("tf.compat.v1.tpu step", "TPUStrategy step"):
        assert checks[step].status == "ok"
        assert "an all-reduce over 2 cores is right" in checks[step].found
    processors = len(os.sched_getaffinity(0))
    assert f"{processors} compute threads" in checks["threads"].found
    assert checks["tensorflow-io"].status in {"ok", "note"}


def test_report_for_people_counts_cores_from_the_environment():
    done = run_command("doctor", env={"TF_TPU_EXT_CORES": "3"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 cores, /device:TPU:0 to /device:TPU:2; mesh 3 x 1 x 1 x 1" in done.stdout
    assert done.stdout.endswith("All is well.\n")
    assert "FAILED" not in done.stdout


def test_library_of_another_tensorflow(copy):
    add_library(copy)
    (copy / "_built_for.py").write_text('TF_VERSION = "2.1.0"\n')
    done = run_command("doctor", package=copy)
    assert done.returncode == 1
    assert "FAILED  library" in done.stdout
    assert "was built for TensorFlow 2.1 (2.1.0)" in done.stdout
    assert f"({tf.__version__})" in done.stdout
    assert "==2.1.*'" in done.stdout
    assert "1 of " in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_command_beside_another_tensorflow(copy):
    add_library(copy)
    fake = copy.parent / "tensorflow"
    fake.mkdir()
    (fake / "__init__.py").write_text('__version__ = "2.1.1"\n')
    done = run_installed("doctor", folder=copy.parent)
    assert done.returncode == 1
    assert f"was built for TensorFlow {_library.minor_of(tf.__version__)}" in done.stdout
    assert "found TensorFlow 2.1 (2.1.1)" in done.stdout
    assert "Run: pip install" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_command_works_where_the_import_fails(copy):
    (copy / "__init__.py").write_text("raise RuntimeError('the package was imported')")
    done = run_installed("doctor", "--json", folder=copy.parent)
    assert done.returncode == 1
    assert "the package was imported" in report(done)["library"].found
    assert run_installed("surgeon", folder=copy.parent).returncode == 2


def test_command_without_the_package(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert tf_tpu_command.main() == 1
    assert f"no tf_tpu_ext for {sys.executable}" in capsys.readouterr().err


def test_the_entry_point_is_that_command():
    # A checkout that was built in place has no metadata to look at.
    scripts = importlib.metadata.entry_points(group="console_scripts", name="tf-tpu")
    assert {script.value for script in scripts} <= {"tf_tpu_command:main"}


def test_library_that_is_not_built(copy):
    # That of an installed package is of another version.
    (copy / "_version.py").write_text('VERSION = "0.0.0"\n')
    checks = report(done := run_command("doctor", "--json", package=copy))
    assert done.returncode == 1
    assert checks["library"].status == "failed"
    assert "expected libtf_tpu_ext_ops.so" in checks["library"].found
    assert "run: pip install" in checks["library"].found
    assert checks["library"].advice
    # Nothing is said of what could not be tried.
    assert "devices" not in checks
    assert checks["TensorFlow"].status == "ok"


def test_environment_variable_out_of_range():
    done = run_command("doctor", "--cores", "0")
    assert done.returncode == 1
    assert "Received: cores=0" in done.stdout
    assert "TF_TPU_EXT_*" in done.stdout


@pytest.mark.parametrize(
    ("body", "code_or_signal"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("import os, sys; print('last words', file=sys.stderr, flush=True); os._exit(3)", "code 3"),
    ],
)
def test_crash_is_a_failed_check(copy, body, code_or_signal):
    add_library(copy)
    (copy / "__init__.py").write_text(body)
    checks = report(done := run_command("doctor", "--json", package=copy))
    assert done.returncode == 1
    assert code_or_signal in checks["machine"].found
    assert ("last words" in checks["machine"].found) == (code_or_signal == "code 3")
    assert checks["machine"].advice


def test_hang_is_a_failed_check(copy):
    (copy / "__init__.py").write_text("import time; time.sleep(600)")
    checks = report(done := run_command("doctor", "--json", "--timeout", "2", package=copy))
    assert done.returncode == 1
    assert "had not ended after 2 s" in checks["machine"].found


def test_step_that_gives_a_wrong_number_fails():
    from tf_tpu_ext.cli import probes

    probes._expect([3.0, 3.0], 2)
    with pytest.raises(RuntimeError, match=r"must be 3\.0 on each; got \[3\.0, 1\.0\]"):
        probes._expect([3.0, 1.0], 2)
    with pytest.raises(RuntimeError, match=r"got \[3\.0\]"):
        probes._expect([3.0], 2)


def test_failing_step_is_told_and_the_next_one_runs(capsys):
    from tf_tpu_ext.cli import probes

    assert not probes.attempt("step", lambda: 1 / 0, "try again")
    assert probes.attempt("other step", lambda: "fine", "try again")
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first == {
        "name": "step",
        "status": "failed",
        "found": "ZeroDivisionError: division by zero",
        "advice": "try again",
    }
    assert second["status"] == "ok"


@pytest.mark.parametrize(
    ("code", "status", "part"),
    [
        ("raise ImportError('no symbol')", "note", "can't be imported: no symbol"),
        (
            "class experimental:\n class text:\n"
            "  def re2_full_match(*_): raise NotImplementedError('unable to open file')",
            "note",
            "its native ops don't load",
        ),
        (
            "import tensorflow as tf\nclass experimental:\n class text:\n"
            "  re2_full_match = lambda *_: (tf.constant([True]), None)",
            "ok",
            "a native op runs",
        ),
    ],
)
def test_tensorflow_io_never_fails_the_whole(tmp_path, monkeypatch, code, status, part):
    (tmp_path / "tensorflow_io.py").write_text(code)
    if status == "note":
        # Nothing but TensorFlow's version is asked for, and importing it takes seconds.
        (tmp_path / "tensorflow.py").write_text("__version__ = '2.21.0'")
        monkeypatch.setattr(doctor, "PACKAGE", tmp_path / PACKAGE.name)  # is imported first
    monkeypatch.setattr(doctor, "_version", lambda name: "0.37.1")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    (check,) = doctor.tensorflow_io(environment, timeout=120)
    assert check.status == status
    assert check.found.startswith("0.37.1: ")
    assert part in check.found
    assert ("2.16 and 2.17" in check.advice) == (status == "note")


def test_the_environment_of_pipelines(tmp_path, monkeypatch):
    monkeypatch.setenv("TF_TPU_EXT_IO_FOLDER", str(tmp_path))
    check = doctor.pipelines(timeout=60)
    assert (check.status, check.advice) == ("note", "To make it, run: tf-tpu io setup")
    assert str(tmp_path) in check.found

    requirements = doctor.pipelines_environment().REQUIREMENTS
    mark = tmp_path / "tf_tpu_ext_io.json"
    mark.write_text(json.dumps({"requirements": list(requirements)}))
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    for code, status, found in ((0, "ok", str(python)), (1, "failed", "no such op")):
        python.write_text(f"#!/bin/sh\necho no such op >&2\nexit {code}\n")
        python.chmod(0o755)
        check = doctor.pipelines(timeout=60)
        assert check.status == status
        assert found in check.found


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda name: None)
    monkeypatch.setattr(doctor, "_tensorflow_distributions", list)
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    checks = {check.name: check for check in doctor.versions()}
    assert checks["TensorFlow"].status == "failed"
    minor = _library.minor_of(tf.__version__)
    assert f"pip install 'tensorflow-cpu=={minor}.*'" in checks["TensorFlow"].advice
    assert checks["keras"].status == "note"


def test_version():
    done = run_command("--version")
    assert (done.returncode, done.stdout) == (0, f"tf_tpu_ext {tf_tpu_ext.__version__}\n")


def test_wrong_command_line_is_refused(capsys):
    for arguments in ([], ["surgeon"], ["doctor", "--cores", "two"]):
        with pytest.raises(SystemExit) as caught:
            main.main(arguments)
        assert caught.value.code == 2
    assert "doctor" in capsys.readouterr().err
