"""A short run of each fuzzer of tools/fuzz: no input ends the process."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

TOOL = pathlib.Path(__file__).resolve().parent.parent / "tools" / "fuzz.py"


@pytest.mark.parametrize(("kind", "trials"), [("ops", 150), ("graphs", 50)])
def test_a_short_run(kind: str, trials: int) -> None:
    command = [sys.executable, str(TOOL), kind, "--trials", str(trials), "--seed", "1"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"seed 1, {trials} trials" in run.stdout
    assert "0 failures" in run.stdout
