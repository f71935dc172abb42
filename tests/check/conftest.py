"""Programs of these tests are watched."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tf_tpu_ext


@pytest.fixture(autouse=True)
def watched() -> Iterator[None]:
    with tf_tpu_ext.Options(check=True):
        yield
