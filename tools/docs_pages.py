"""What MkDocs shows in addition to docs/: pages from the repository's root, and notebooks.

MkDocs loads this as a hook, see mkdocs.yml. Links in the sources are relative to the repository, so
that they also work on GitHub; here they become links within the site.
"""

from __future__ import annotations

import json
import pathlib
import posixpath
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Pages from the repository's root, and where they are in the site.
TOP = {
    "README.md": "index.md",
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
_SOURCES = {page: source for source, page in TOP.items()}
_LINK = re.compile(r"\]\(([^)\s#:]+)((?:#[^)\s]*)?)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the root's pages, and one for each notebook, which itself is available for download."""
    for source, page in TOP.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            content = markdown_of(pathlib.Path(str(file.abs_src_path)))
            files.append(File.generated(config, page_of(file.src_uri), content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns the repository's links into the site's."""
    here = page.file.src_uri
    source = _SOURCES.get(here, f"docs/{here}")

    def replace(match: re.Match[str]) -> str:
        linked = posixpath.normpath(posixpath.join(posixpath.dirname(source), match[1]))
        target = TOP.get(linked, linked.removeprefix("docs/"))
        # A link to a notebook leads to its page, which links to the file.
        if target.endswith(".ipynb") and page_of(target) != here:
            target = page_of(target)
        return f"]({posixpath.relpath(target, posixpath.dirname(here) or '.')}{match[2]})"

    return _LINK.sub(replace, markdown)


def page_of(notebook: str) -> str:
    return notebook.removesuffix(".ipynb") + ".md"


def markdown_of(notebook: pathlib.Path) -> str:
    """Returns the cells of a notebook as a page, with a link to the notebook."""
    parts = []
    for cell in json.loads(notebook.read_text())["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    parts.insert(1, f"This page is a notebook, which CI runs: [download it]({notebook.name}).")
    return "\n\n".join(parts) + "\n"
