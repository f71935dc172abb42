"""tools/programs: a program of our own in place of a published one, good and bad."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

TOOLS = pathlib.Path(__file__).resolve().parent.parent / "tools"

# Counts steps on the cores, and saves after the first two, from which it goes on.
TRAINING = """
import pathlib, sys, time
import tensorflow as tf

model, last = pathlib.Path(sys.argv[1]), float(sys.argv[2])
resolver = tf.distribute.cluster_resolver.TPUClusterResolver("any-name")
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)
saved = model / "checkpoint"
if saved.exists():
    print("goes on")
for step in range(3):
    total = strategy.reduce("MEAN", strategy.run(tf.function(lambda: tf.constant(4.0))), axis=None)
    print(f"loss = {float(total) - step * last}", flush=True)
    if step == 1 and not saved.exists():
        saved.write_text('model_checkpoint_path: "saved-2"')
        time.sleep(3 if len(sys.argv) > 3 else 0)
"""


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(TOOLS))
    from published import trial

    return trial


@pytest.fixture
def place(trial: Any, tmp_path: pathlib.Path) -> Any:
    (tmp_path / "train.py").write_text(TRAINING)
    python = pathlib.Path(sys.executable)
    return trial.Place(python, tmp_path, tmp_path, None, dict(os.environ))


def program(*arguments: str, **fields: Any) -> Any:
    from published.program import Environment, Program

    return Program(
        name="counting",
        package="counting 1.0",
        environment=Environment("own"),
        command=("{data}/train.py", "{model}", *arguments),
        prepare=lambda folder: None,
        checkpoint="checkpoint",
        resumed="goes on",
        alike=0.01,
        seconds=120,
        **fields,
    )


def test_a_good_program(trial: Any, place: Any) -> None:
    result = trial.run(program("0.5"), 2, place)
    assert result.problems == ()
    assert result.losses == (4.0, 3.5, 3.0)
    resumed = trial.resume(program("0.5", "slowly"), 2, place)
    assert resumed.problems == ()
    assert "goes on" in resumed.log.read_text()


def test_a_program_may_print_no_losses(trial: Any, place: Any) -> None:
    result = trial.run(program("0.5", loss=None), 2, place)
    assert result.problems == ()
    assert result.losses == ()


def test_what_is_wrong_is_told(trial: Any, place: Any) -> None:
    result = trial.run(program("-0.5"), 2, place)
    assert result.problems == ("its loss went from 4.0 to 5.0",)
    other = trial.Result(program("0"), 8, 1.0, (4.0, 5.1), (), result.log)
    assert trial.different([result, other]) == ["loss 5.0 on 2 cores, and 5.1 on 8"]
    failed = trial.run(program("not a number"), 2, place)
    assert failed.problems == (f"it ended with 1, see {failed.log}",)


def test_evaluations_restore_checkpoints_too(trial: Any) -> None:
    from published.program import Program

    restored, evaluated = "Restoring parameters from model/ckpt-20\n", "Starting evaluation at 1\n"
    [resumed] = [field.default for field in dataclasses.fields(Program) if field.name == "resumed"]
    assert re.search(resumed, f"begins\n{restored}{evaluated}{restored}")
    assert not re.search(resumed, f"begins\n{evaluated}{restored}")
    assert not re.search(resumed, "Restoring parameters from model/ckpt-0\n")


def test_what_has_to_be_cloned_is_told(tmp_path: pathlib.Path) -> None:
    command = [sys.executable, str(TOOLS / "programs.py"), "--work", str(tmp_path / "work")]
    done = subprocess.run(
        [*command, "--sources", str(tmp_path), "mesh-toy-model"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert f"needs a clone of tensorflow/mesh in {tmp_path}/mesh" in done.stdout
    assert "git clone" in done.stdout
    assert "checkout da907937" in done.stdout
