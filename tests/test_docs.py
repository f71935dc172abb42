"""Every code block of the documentation runs, and what the pages name is there."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import itertools
import os
import pathlib
import pkgutil
import re
import shlex
import subprocess
import sys

import doc_pages
import pytest
from doc_pages import NOTEBOOKS, PAGES, ROOT, Block

import tf_tpu_ext

PAGE_IDS = [str(page.relative_to(ROOT)) for page in PAGES]
# tools/docs runs the notebooks. Their texts are checked like those of the pages.
TEXTS = [*PAGES, *NOTEBOOKS]
TEXT_IDS = [str(page.relative_to(ROOT)) for page in TEXTS]
BLOCKS = [block for page in PAGES for block in doc_pages.blocks_of(page)]
PROGRAMS = [program for page in PAGES for program in doc_pages.programs_of(page)]
COMMANDS = [block for block in BLOCKS if block.language == "bash" and not block.not_run]
NOT_RUN = [block for block in BLOCKS if block.not_run]
MARK = re.compile(r"continues|cores=\d+|needs \w+")
# The checkout's own command-line programs import each other from their folder.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
OWN_PATH = re.compile(r"(cc|tf_tpu_ext|tools|benchmarks|tests|examples|docs|\.ci)/[\w./-]*")


@pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)
def test_blocks_are_recognized(page):
    blocks = doc_pages.blocks_of(page)
    fences = re.findall(r"^\s*(?:```|~~~)", page.read_text(), re.MULTILINE)
    assert len(fences) == 2 * len(blocks)
    for block in blocks:
        assert block.language in doc_pages.LANGUAGES, block
        for kind, text in block.marks:
            assert kind in ("ci", "not run") or MARK.fullmatch(text), f"{block}: {text}"


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: str(program[0]))
def test_program(request, run_python, tmp_path, program: list[Block]):
    settings = [block.setting for block in program]
    for package in filter(None, (setting(r"needs (\w+)") for setting in settings)):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    cores = next(filter(None, (setting(r"cores=(\d+)") for setting in settings)), "")
    # Autograph reads the source of functions. Lines have the numbers that they have on the page.
    code = ""
    for block in program:
        code += "\n" * (block.line - 1 - code.count("\n")) + block.code
    if "tf_tpu_ext.io" in code:
        request.getfixturevalue("io_environment")
    path = tmp_path / f"{pathlib.Path(program[0].page).stem}.py"
    path.write_text(code)
    run = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
    # An empty variable leaves the default.
    done = run_python(run, str(path), env={"TF_TPU_EXT_CORES": cores})
    printed = iter(done.stdout.splitlines())
    for expected in itertools.chain.from_iterable(block.prints for block in program):
        pattern = ".*".join(map(re.escape, expected.split("...")))
        assert any(re.fullmatch(pattern, line) for line in printed), f"{expected}: {done.stdout}"


@pytest.mark.parametrize("block", NOT_RUN, ids=str)
def test_block_that_is_not_run(block: Block):
    assert len(block.not_run.split()) > 2, "The mark has to give the reason."
    pytest.skip(block.not_run)


def test_few_blocks_are_not_run():
    assert len(NOT_RUN) == 2, [f"{block}: {block.not_run}" for block in NOT_RUN]


@pytest.mark.parametrize("block", COMMANDS, ids=str)
def test_commands(block: Block):
    if any(kind == "ci" for kind, _ in block.marks):
        assert "readme_command" in (ROOT / ".ci" / "run").read_text()
        return
    for line in block.code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        for is_end, command in itertools.groupby(words, lambda word: word == "&&"):
            if not is_end:
                check_command(list(command))


def check_command(words: list[str]) -> None:
    """Checks that a command names programs, options, files and extras that there are."""
    program, *arguments = itertools.dropwhile(re.compile(r"[A-Z_]+=").match, words)
    if program == "python" and arguments[0] == "-m":
        module, *arguments = arguments[1:]
        if module == "pip":
            check_extras(arguments)
        elif module == "pytest":
            check_files(arguments)
        else:
            assert module == "venv", words
    elif program == "python":
        check_options(ROOT / arguments[0], arguments[1:])
    elif program.startswith("tools/"):
        assert os.access(ROOT / program, os.X_OK), words
        check_options(ROOT / f"{program}.py", arguments)
    elif program == "tf-tpu":
        script = next((i for i, word in enumerate(arguments) if word.endswith(".py")), None)
        check_options(ROOT / "tf_tpu_command.py", arguments[:script])
    elif program == ".ci/run":
        steps = re.search(r"ALL_STEPS=\((.*)\)", (ROOT / program).read_text())
        assert set(arguments) <= set(steps[1].split()), words
    elif program == "bazelisk":
        build = (ROOT / "BUILD").read_text()
        assert all(f'name = "{target[3:]}"' in build for target in arguments[1:]), words
    else:
        assert program in (".", "git"), words


def check_options(program: pathlib.Path, arguments: list[str]) -> None:
    """Checks the options of a command, which may begin with the name of a subcommand."""
    command = [sys.executable, str(program)]
    if program.name == "tf_tpu_command.py":
        command.append(arguments[0])
    command.append("--help")
    shown = _output(tuple(command))
    options = {word.partition("=")[0] for word in arguments if word.startswith("--")}
    unknown = options - set(re.findall(r"--[\w-]+", shown))
    assert not unknown, f"{program.name} has no {sorted(unknown)}"


@functools.cache
def _output(command: tuple[str, ...]) -> str:
    done = subprocess.run(
        command, env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_extras(arguments: list[str]) -> None:
    project = (ROOT / "pyproject.toml").read_text()
    section = re.search(r"\[project\.optional-dependencies\]\n(.*?)\n\n", project, re.DOTALL)
    extras = re.findall(r"^(\w+) = \[", section[1], re.MULTILINE)
    for argument in arguments:
        wanted = re.fullmatch(r"(?:\.|tf_tpu_ext)\[(.*)\]", argument)
        assert not wanted or set(wanted[1].split(",")) <= set(extras), argument


def check_files(arguments: list[str]) -> None:
    for path in (word.partition("::")[0] for word in arguments if word.startswith("tests")):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", TEXTS, ids=TEXT_IDS)
def test_links_lead_somewhere(page):
    for path, anchor in doc_pages.links_of(page):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        assert not anchor or anchor in doc_pages.anchors_of(target), f"{path}#{anchor}"


@pytest.mark.parametrize("page", TEXTS, ids=TEXT_IDS)
def test_files_that_are_named_exist(page):
    for span in doc_pages.code_spans_of(page):
        if OWN_PATH.fullmatch(span):
            assert (ROOT / span).exists(), span
        elif re.fullmatch(r"\w+\.(cc|h)", span):
            assert list((ROOT / "cc").rglob(span)), span
        elif re.fullmatch(r"_?\w+\.py", span):
            assert list(ROOT.rglob(span)), span


@pytest.mark.parametrize("page", TEXTS, ids=TEXT_IDS)
def test_names_of_the_package_exist(page):
    has_estimators = importlib.util.find_spec("tensorflow_estimator") is not None
    for span in doc_pages.code_spans_of(page):
        name = re.match(r"tf_tpu_ext(?:\.[A-Za-z_]\w*)+", span)
        if name and (has_estimators or "estimator" not in name[0]):
            pkgutil.resolve_name(name[0])
        for option in re.findall(r"\bconfigure\((\w+)=", span):
            assert option in inspect.signature(tf_tpu_ext.configure).parameters, span


def test_environment_variables_exist():
    package = "".join(path.read_text() for path in (ROOT / "tf_tpu_ext").rglob("*.py"))
    for page in PAGES:
        for name in re.findall(r"\bTF_TPU_EXT_[A-Z_]*[A-Z]\b", page.read_text()):
            assert name in package, f"{page.name}: {name}"
