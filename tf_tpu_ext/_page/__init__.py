"""The report as a page: `tf_tpu_ext.report`, and `tf-tpu run --report out.html`.

Everything is in a single file, which opens without a network.
"""

from __future__ import annotations

import os
import pathlib
from typing import Any

_FOLDER = pathlib.Path(__file__).parent
# In this order: Plot uses d3.
_SCRIPTS = ("vendor/d3.min.js", "vendor/plot.umd.min.js", "page.js")


def report(path: str | os.PathLike[str], *, title: str | None = None) -> None:
    """Writes a page about what this process's programs have done so far.

    It shows a timeline of the first steps, every compilation and why it was repeated, padding,
    calls to the host, collectives, memory, and whether a real TPU would run the program. See
    docs/report.md. With a target (`tf_tpu_ext.configure`), it first waits for the verdicts.

    Args:
        path: The file to write, such as `report.html`.
        title: The page's title; the script's name if omitted.

    Raises:
        ImportError: Jinja2 is not installed.

    Example:
        >>> import pathlib, tempfile
        >>> import tf_tpu_ext
        >>> _ = tf_tpu_ext.tpu.rewrite(lambda x: x * 2.0, [3.0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "report.html")
        ...     tf_tpu_ext.report(path)
        ...     print(path.read_text()[:15])
        <!DOCTYPE html>
    """
    template = _template()
    from tf_tpu_ext._page import _facts

    text = template.render(_facts.gather(title))
    pathlib.Path(path).write_text(text, encoding="utf-8")


def check_available() -> None:
    """Checks that pages can be written.

    Raises:
        ImportError: Jinja2 is not installed.
    """
    _template()


def _template() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise ImportError(
            "The page of a report is written by Jinja2, which is not installed. "
            "Run: pip install 'tf_tpu_ext[report]'",
            name="jinja2",
        ) from error
    from tf_tpu_ext._page import _facts
    from tf_tpu_ext.verdict import _table

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["binary_size"] = _table.size
    environment.filters["duration"] = _duration
    environment.filters["expected_time"] = _table.expected_time
    environment.filters["short_time"] = _table.seconds
    environment.filters["size"] = _size
    environment.filters["short_line"] = _facts.short_line
    environment.filters["code_of"] = _facts.code_of
    environment.globals["of_padding"] = _table.OF_PADDING
    environment.globals["scripts"] = [(_FOLDER / name).read_text("utf-8") for name in _SCRIPTS]
    environment.globals["style"] = (_FOLDER / "page.css").read_text("utf-8")
    return environment.get_template("page.html")


def _duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{1e3 * seconds:.1f} ms" if seconds >= 1e-4 else f"{1e6 * seconds:.1f} µs"


def _size(number: float) -> str:
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"
