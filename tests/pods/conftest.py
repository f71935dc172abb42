"""Pods for tests, and programs on them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
from worker_processes import START, Pod


@pytest.fixture(scope="module")
def shared() -> Iterator[Pod]:
    pod = Pod()
    yield pod
    pod.end()


@pytest.fixture
def pod() -> Iterator[Pod]:
    pod = Pod()
    yield pod
    pod.end()


@pytest.fixture(scope="module")
def impatient_pods() -> Iterator[list[Pod]]:
    """The last pod of `impatient`."""
    pods: list[Pod] = []
    yield pods
    for pod in pods:
        pod.end()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, impatient_pods: list[Pod]) -> Iterator[Pod]:
    """A pod, and programs, that wait for 4 seconds for a sign of life.

    Tests may stop or kill its workers.
    """
    monkeypatch.setenv("TF_TPU_EXT_HOST_LIMIT_SECONDS", "4")
    if not impatient_pods:
        impatient_pods.append(Pod())
    [pod] = impatient_pods
    yield pod
    if pod.go_on():
        return
    impatient_pods.remove(pod)
    pod.end()


@pytest.fixture
def program(run_python: Any, shared: Pod) -> Any:
    """Runs a program on the pod, and returns what it prints after "RESULT" as JSON."""

    def run(code: str, *arguments: str, address: str | None = None) -> Any:
        done = run_python(START + textwrap.dedent(code), address or shared.address, *arguments)
        [line] = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        return json.loads(line.removeprefix("RESULT "))

    return run
