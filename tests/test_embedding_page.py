"""docs/embedding.md: its program trains."""

from __future__ import annotations

import re


def test_program(run_page):
    printed = run_page("embedding", 2)
    assert float(re.fullmatch(r"error (\d\.\d{4})\n", printed)[1]) < 0.05
