"""Pipelines of files that the tests write, and what remains of their processes."""

from __future__ import annotations

import gc
import os
import pathlib
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pipeline_processes import servers_of, wait_until

import tf_tpu_ext.io
from tf_tpu_ext.io import _environment


@pytest.fixture
def pipeline(tmp_path: pathlib.Path, io_environment: pathlib.Path) -> Callable[..., Any]:
    """Makes a dataset by a function `make` of a file with the given code."""
    del io_environment

    def make(code: str, *args: Any, **kwargs: Any) -> Any:
        path = tmp_path / "pipeline.py"
        path.write_text("import tensorflow as tf\n" + textwrap.dedent(code))
        return tf_tpu_ext.io.dataset(f"{path}:make", *args, **kwargs)

    return make


@pytest.fixture(autouse=True)
def same_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipelines of all tests are copies of one process: pytest's variable changes all the time."""
    variables = _environment.variables

    def without_test(own: bool) -> dict[str, str]:
        return {
            name: value for name, value in variables(own).items() if name != "PYTEST_CURRENT_TEST"
        }

    monkeypatch.setattr(_environment, "variables", without_test)


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """After each test, its datasets are dropped and their processes have ended."""
    yield
    gc.collect()
    wait_until(lambda: (gc.collect(), not servers_of(os.getpid()))[1])
