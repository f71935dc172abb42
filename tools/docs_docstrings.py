"""Prepares docstrings for the reference: griffe loads this as an extension, see mkdocs.yml.

Examples become code blocks, and the names of pages become links.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_SECTION = re.compile(r"\w[\w ]*:$")
_PAGE = re.compile(r"\bdocs/(\w+)\.md\b")


class Docstrings(griffe.Extension):
    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        prepare(pkg)


def prepare(thing: griffe.Object) -> None:
    """Prepares the docstrings of a module or class, and of its members."""
    if thing.docstring is not None:
        thing.docstring.value = linked(fenced(thing.docstring.value))
    for member in thing.members.values():
        if not member.is_alias:
            prepare(member)


def fenced(text: str) -> str:
    """Puts fences around the examples, which Markdown would treat as quotations.

    In a section of the docstring, fences are indented like the example. Elsewhere, an example may
    be indented, which is Markdown for code, so fences have to be at the margin.
    """
    lines: list[str] = []
    in_section = in_example = False
    margin, fence = 0, ""
    for line in [*text.splitlines(), ""]:
        indent = len(line) - len(line.lstrip())
        if line and not in_example and indent == 0:
            in_section = _SECTION.match(line) is not None
        if line.lstrip().startswith(">>> ") and not in_example:
            in_example, margin = True, 0 if in_section else indent
            fence = " " * (indent - margin) + "```"
            lines.append(f"{fence}pycon")
        elif not line and in_example:
            in_example = False
            lines.append(fence)
        lines.append(line[margin:] if in_example else line)
    return "\n".join(lines[:-1])


def linked(text: str) -> str:
    """Makes `docs/towers.md` a link from the folder of the reference, which MkDocs checks."""
    return _PAGE.sub(r"[\g<0>](../\1.md)", text)
