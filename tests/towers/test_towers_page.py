"""docs/towers.md names every member of the strategy."""

from __future__ import annotations

import pathlib
import re

import tf_tpu_ext

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "towers.md"


def test_every_member_is_in_the_table():
    text = PAGE.read_text()
    owners = [x for x in tf_tpu_ext.TPUStrategy.__mro__ if x.__module__.startswith("tf_tpu_ext")]
    for name in {name for owner in owners for name in vars(owner)}:
        if not name.startswith("_") and name not in ("steps_per_run", "is_single_tower"):
            assert re.search(rf"\b{name}\b", text), name
