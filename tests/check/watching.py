"""What is found in a watched program, and where it says that is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import tf_tpu_ext


def found_by(run: Callable[[], Any]) -> list[tf_tpu_ext.Finding]:
    """What is found while something runs."""
    before = {_place(each) for each in tf_tpu_ext.findings()}
    run()
    return [each for each in tf_tpu_ext.findings() if _place(each) not in before]


def _place(finding: tf_tpu_ext.Finding) -> tuple[str, ...]:
    return (finding.kind, finding.program, finding.op, finding.source, finding.other_source)


def line_of(function: Callable[..., Any], text: str) -> str:
    """The place of the first line of a function that holds a text, as `file:line`."""
    lines, first = inspect.getsourcelines(function)
    offset = next(i for i, line in enumerate(lines) if text in line)
    return f"{inspect.getsourcefile(function)}:{first + offset}"
