"""The pages of documentation: their code blocks, links and headings.

A comment directly above a block says how it is tested:

    <!-- not run: REASON -->      it can't run here
    <!-- test: continues -->      it goes on from the block before it, in the same program
    <!-- test: cores=2 -->        the program gets two cores; without this, as many as a user gets
    <!-- test: needs PACKAGE -->  the program is skipped where the package is missing
    <!-- ci: NAME -->             .ci/run runs it
"""

from __future__ import annotations

import dataclasses
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOTEBOOKS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
LANGUAGES = ("python", "bash", "text")

_BLOCK = re.compile(r"((?:^<!-- [^\n]* -->\n)*)^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_MARK = re.compile(r"<!-- (?:(ci|test|not run): )?(.*?) -->")
_PRINTS = re.compile(r"^print\(.*\)  # (.+)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes:
        page: Path of the page, from the root of the repository.
        line: Line of the page where the code begins.
        language: What follows the opening fence.
        code: The code.
        marks: The comments directly above, as pairs of kind and text.
    """

    page: str
    line: int
    language: str
    code: str
    marks: tuple[tuple[str, str], ...]

    @property
    def not_run(self) -> str:
        """Why the block can't run; empty if it can."""
        return next((text for kind, text in self.marks if kind == "not run"), "")

    @property
    def continues(self) -> bool:
        return ("test", "continues") in self.marks

    @property
    def prints(self) -> list[str]:
        """What the page says about the output: the comments after calls of print."""
        return _PRINTS.findall(self.code)

    def setting(self, pattern: str) -> str | None:
        """What the group of a pattern matches in a test mark."""
        found = (re.fullmatch(pattern, text) for kind, text in self.marks if kind == "test")
        return next((match[1] for match in found if match), None)

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: pathlib.Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(
            str(page.relative_to(ROOT)),
            text.count("\n", 0, match.start(3)) + 1,
            match[2],
            match[3],
            tuple(_MARK.findall(match[1])),
        )
        for match in _BLOCK.finditer(text)
    ]


def programs_of(page: pathlib.Path) -> list[list[Block]]:
    """The Python blocks that run, those of one program together."""
    programs: list[list[Block]] = []
    for block in blocks_of(page):
        if block.language == "python" and not block.not_run:
            if block.continues:
                programs[-1].append(block)
            else:
                programs.append([block])
    return programs


def without_blocks(page: pathlib.Path) -> str:
    return _BLOCK.sub("", page.read_text())


def anchors_of(page: pathlib.Path) -> set[str]:
    """The names that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", without_blocks(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links_of(page: pathlib.Path) -> list[tuple[str, str]]:
    """The links to other pages and places of this repository, as pairs of path and anchor."""
    targets = re.findall(r"\]\(([^)\s]+)\)", without_blocks(page))
    return [target.partition("#")[::2] for target in targets if "://" not in target]


def code_spans_of(page: pathlib.Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", without_blocks(page))
