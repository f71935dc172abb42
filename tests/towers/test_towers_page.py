"""docs/towers.md names every member of the strategy."""

from __future__ import annotations

import pathlib
import re

from tf_tpu_ext.towers import _members, strategy

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "towers.md"


def test_every_member_is_in_the_table():
    text = PAGE.read_text()
    members = set(vars(strategy.TPUStrategy)) | set(vars(_members.Members))
    for name in members:
        if not name.startswith("_") and name not in ("steps_per_run", "is_single_tower"):
            assert re.search(rf"\b{name}\b", text), name
