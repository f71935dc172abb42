"""Builds the documentation site, or runs its notebooks.

Both need the extra `docs`. It is installed into a separate virtual environment below `build/docs`,
so this Python remains unchanged. Building needs neither TensorFlow nor, once the extra is
installed, a network. Notebooks run with this Python, which needs tf_tpu_ext, tensorflow-estimator
and tf_keras.

Examples:
    tools/docs                    # the site, in build/docs/site; exit code 1 if a link is dead
    tools/docs --serve            # the site on http://localhost:8000, rebuilt after each change
    tools/docs --notebooks        # runs every notebook; exit code 1 if one fails
    tools/docs --notebooks docs/tutorials/first_step.ipynb
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator, Sequence

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import environments  # noqa: E402

BUILD = ROOT / "build" / "docs"
SITE = BUILD / "site"
NOTEBOOKS = ROOT / "docs" / "tutorials"
CELL_SECONDS = 300
# MkDocs' theme advertises its successor on every run.
_ENVIRONMENT = {"NO_MKDOCS_2_WARNING": "1"}
# What a browser fetches by itself, unlike links that a reader follows.
_LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link\b(?=[^>]*rel=[\"']?(?:stylesheet|preconnect|preload|icon))"
    r"[^>]*\bhref=[\"']?((?:https?:)?//[^\"'\s>]+)"
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--serve", action="store_true", help="serve the site while it is written")
    parser.add_argument(
        "--notebooks", nargs="*", type=pathlib.Path, metavar="FILE", help="run all, or these"
    )
    options = parser.parse_args()
    python = environment()
    if options.notebooks is not None:
        found = sorted(NOTEBOOKS.glob("*.ipynb"))
        problems = run_notebooks(python, options.notebooks or found)
    elif options.serve:
        environments.run(python, "-m", "mkdocs", "serve", "--strict", env=_ENVIRONMENT)
        problems = []
    else:
        problems = build_site(python)
    if problems:
        sys.exit("\n".join(problems))


def requirements() -> list[str]:
    """Returns the requirements of the extra `docs` in pyproject.toml."""
    # Python 3.10 has no TOML parser. A list of strings is the same in both languages.
    extra = re.search(r"^docs = (\[.*?\])", (ROOT / "pyproject.toml").read_text(), re.M | re.S)
    if extra is None:
        sys.exit("pyproject.toml has no extra named docs.")
    return [str(requirement) for requirement in ast.literal_eval(extra[1])]


def environment() -> pathlib.Path:
    """Returns the Python of the virtual environment, which is created if missing or outdated."""
    folder, wanted = BUILD / "venv", [sys.version, *requirements()]
    stamp = folder / "made_for.json"
    if stamp.exists() and json.loads(stamp.read_text()) == wanted:
        return folder / "bin" / "python"
    python = environments.make(folder, wanted[1:])
    stamp.write_text(json.dumps(wanted))
    return python


def build_site(python: pathlib.Path) -> list[str]:
    """Builds the site, and returns what is wrong."""
    try:
        environments.run(python, "-m", "mkdocs", "build", "--strict", env=_ENVIRONMENT)
    except subprocess.CalledProcessError:
        return ["MkDocs has warned, see above: no page may have a warning."]
    print(f"The site is in {SITE}")
    return [*loaded_from_elsewhere(), *names_without_reference()]


def loaded_from_elsewhere() -> Iterator[str]:
    """Yields what a page would fetch over the network."""
    for page in sorted(SITE.rglob("*.html")):
        for found in _LOADED.finditer(page.read_text()):
            yield f"{page.relative_to(SITE)} loads {found[1] or found[2]}: keep a copy in docs/"


def names_without_reference() -> Iterator[str]:
    """Yields the public names of documented modules that their page neither documents nor names."""
    inventory = (SITE / "objects.inv").read_bytes().split(b"\n", 4)[4]
    documented = {line.split(" ")[0] for line in zlib.decompress(inventory).decode().splitlines()}
    for page in sorted((ROOT / "docs" / "reference").glob("*.md")):
        html = (SITE / "reference" / f"{page.stem}.html").read_text()
        for module in re.findall(r"^::: ([\w.]+)$", page.read_text(), re.M):
            for name in public_names(module):
                is_named = f"<code>{name}</code>" in html or f"<code>{module}.{name}</code>" in html
                if f"{module}.{name}" not in documented and not is_named:
                    yield f"{page.relative_to(ROOT)} lacks {module}.{name}"


def public_names(module: str) -> list[str]:
    """Returns the names in a module's `__all__`, without importing it."""
    path = ROOT / module.replace(".", "/")
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for statement in ast.parse(source.read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(statement.value)]
    return []


def run_notebooks(python: pathlib.Path, notebooks: Sequence[pathlib.Path]) -> list[str]:
    """Runs notebooks, two at a time, and returns what is wrong."""
    kernel = make_kernel(python)
    variables = {**os.environ, "JUPYTER_PATH": str(kernel.parent.parent)}
    # Cells call `tf-tpu`.
    scripts = str(pathlib.Path(sys.executable).parent)
    variables["PATH"] = os.pathsep.join([scripts, os.environ["PATH"]])

    def problems_of(notebook: pathlib.Path) -> list[str]:
        started = time.monotonic()
        command = [
            *(python, "-m", "jupyter", "execute"),
            *(f"--kernel_name={kernel.name}", f"--timeout={CELL_SECONDS}", notebook),
        ]
        done = subprocess.run(
            list(map(str, command)), cwd=ROOT, env=variables, capture_output=True, text=True
        )
        print(f"{notebook.name}: {time.monotonic() - started:.0f} s", flush=True)
        problems = [] if done.returncode == 0 else [f"{done.stderr}\n{notebook} failed"]
        if has_outputs(notebook):
            problems.append(f"{notebook} holds outputs: clear them, so that it has sources only")
        return problems

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(itertools.chain.from_iterable(pool.map(problems_of, notebooks)))


def make_kernel(python: pathlib.Path) -> pathlib.Path:
    """Makes a Jupyter kernel for this Python, which finds ipykernel in the other's environment."""
    folder = BUILD / "jupyter" / "kernels" / "tf_tpu_ext"
    find = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = subprocess.run([str(python), "-c", find], capture_output=True, text=True, check=True)
    start = (
        f"import sys; sys.path.append({packages.stdout.strip()!r}); "
        "from ipykernel import kernelapp; kernelapp.launch_new_instance()"
    )
    kernel = {
        "display_name": folder.name,
        "language": "python",
        "argv": [sys.executable, "-c", start, "-f", "{connection_file}"],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.json").write_text(json.dumps(kernel))
    return folder


def has_outputs(notebook: pathlib.Path) -> bool:
    cells = json.loads(notebook.read_text())["cells"]
    return any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


if __name__ == "__main__":
    main()
