"""The programs in examples/ run, learn, and say so."""

from __future__ import annotations

import importlib.util
import pathlib
import re

import imported_processes
import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"


def run(name, *arguments):
    done = imported_processes.run([EXAMPLES / f"{name}.py", *arguments], timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def numbers(line):
    return [float(number) for number in re.findall(r"\d+\.\d+", line)]


@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow_estimator") is None,
    reason="tensorflow-estimator is not installed",
)
def test_estimator_digits(tmp_path):
    last = run("estimator_digits", f"--model_dir={tmp_path}")[-1]
    assert "after 200 steps" in last
    evaluated, predicted = numbers(last)
    assert evaluated > 0.97
    assert predicted > 0.97
    import tensorflow as tf

    summaries: dict[str, list[float]] = {}
    for path in (tmp_path / "host_call").iterdir():
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                summaries.setdefault(value.tag, []).append(float(tf.make_ndarray(value.tensor)))
    assert sorted(summaries) == ["loss", "spread"]
    assert len(summaries["loss"]) == 200
    assert summaries["loss"][-1] < 0.2 * summaries["loss"][0]
    assert max(summaries["spread"]) > 0


def test_encoder_pretraining():
    last = run("encoder_pretraining")[-1]
    first_loss, last_loss = numbers(last)
    assert last_loss < 0.3 * first_loss
    assert "4 of 4 words right" in last


def test_host_in_the_loop():
    asked, hardest, last = run("host_in_the_loop")[-3:]
    assert "asked 2400 times" in asked
    assert "The hardest digits: [" in hardest
    assert numbers(last)[0] > 0.9


def test_spoken_digits(io_environment):
    last = run("spoken_digits", "--epochs=3")[-1]
    assert "on 8 virtual TPU cores" in last
    assert numbers(last)[0] > 0.95
