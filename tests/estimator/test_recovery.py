"""Training that is killed resumes as docs/estimator.md says."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

if importlib.util.find_spec("tensorflow_estimator") is None:
    pytest.skip("tensorflow-estimator is not installed", allow_module_level=True)

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_killed_training_ends_as_if_left_alone():
    command = [sys.executable, str(ROOT / "tools" / "kill_recovery.py")]
    done = subprocess.run(
        [*command, "--kills", "1", "--cores", "2", "--longest", "12", "--seed", "1"],
        capture_output=True,
        text=True,
        timeout=200,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill 1" in done.stdout
    assert "variables are the same" in done.stdout
