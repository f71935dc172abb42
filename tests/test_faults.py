"""Failures on purpose: a step that fails has changed nothing, and the next one counts."""

from __future__ import annotations

import itertools
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

from tf_tpu_ext import _faults

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from faulting import programs  # noqa: E402

# What a step reaches at least once, in some run of the program.
REACHED = {
    "groups of replicas": {"allocation", "launch"},
    "replicas for themselves": {"allocation", "launch", "collective"},
    "collectives": {"allocation", "launch", "collective"},
    "host calls": {"allocation", "launch", "collective", "host_call", "transfer"},
    "channels": {"allocation", "launch", "collective", "transfer"},
    "infeed and outfeed": {"allocation", "launch", "collective", "transfer"},
    "one core": {"allocation", "launch"},
}


@pytest.fixture(scope="module")
def strategy() -> Any:
    return programs.make_strategy()


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    _faults.disarm()


def _failed(point: str) -> int:
    return _faults.counts()[point]["failed"]


@pytest.mark.parametrize("name", programs.NAMES)
def test_a_step_fails_wherever_it_can(strategy: Any, name: str) -> None:
    program = programs.make_program(strategy, name)
    program.run()
    counted = program.count()
    failing = set()
    for point in _faults.POINTS:
        # The next one that reaches the point, the one after it, and so on to the end of a step.
        for after in itertools.count():
            before = _failed(point)
            _faults.arm(point, after)
            message = ""
            try:
                program.run()
                counted += 1
            except tf.errors.OpError as error:
                message = str(error)
            _faults.disarm()
            assert not message or f"fault point {point}" in message
            if "OutfeedDequeue" in message and program.count() == counted + 1:
                # The program had ended well before the op of the host failed.
                counted += 1
                program.drop_outfeed()
            assert program.count() == counted, f"fault {after} at {point}"
            if _failed(point) == before:
                break
            failing.add(point)
    assert failing == REACHED[name]
    program.run()
    assert program.count() == counted + 1


@pytest.mark.parametrize("name", programs.NAMES)
def test_threads_that_stall(strategy: Any, name: str) -> None:
    program = programs.make_program(strategy, name)
    program.run()
    counted = program.count()
    for point in sorted(REACHED[name]):
        before = _faults.counts()[point]["stalled"]
        _faults.arm(point, stall_seconds=0.05)
        program.run()
        assert _faults.counts()[point]["stalled"] == before + 1
    assert program.count() == counted + len(REACHED[name])


def test_a_failed_compilation_is_tried_again(strategy: Any) -> None:
    program = programs.make_program(strategy, "collectives")
    _faults.arm("compilation")
    with pytest.raises(tf.errors.OpError, match="fault point compilation"):
        program.run()
    program.run()
    assert program.count() == 1


def test_groups_that_can_not_be_compiled(strategy: Any) -> None:
    program = programs.make_program(strategy, "groups of replicas")
    before = _failed("compilation")
    _faults.arm("compilation")
    program.run()  # each replica for itself
    assert _failed("compilation") == before + 1
    assert program.count() == 1


@pytest.mark.parametrize("name", ["host calls", "channels"])
def test_a_cancelled_step_that_waits_for_the_host(strategy: Any, name: str) -> None:
    program = programs.make_program(strategy, name)
    program.run()
    with (
        program.host.held(),
        programs.CancelLater(0.0) as manager,
        pytest.raises(tf.errors.CancelledError),
    ):
        program.run(manager=manager)
    assert program.count() == 1
    program.run()
    assert program.count() == 2


def test_unknown_points() -> None:
    with pytest.raises(ValueError, match="no fault point 'network'; expected one of allocation"):
        _faults.arm("network")
    with pytest.raises(ValueError, match="0 or more"):
        _faults.arm("launch", -1)
    assert set(_faults.counts()) == set(_faults.POINTS)


def test_campaign() -> None:
    command = [sys.executable, str(ROOT / "tools" / "faults.py"), "--steps", "800", "--seed", "4"]
    # The tool imports its own folder.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run(
        [*command, "--faults", "0.05", "--threads", "3"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert done.stdout.endswith("all counts are exact\n"), done.stdout
