"""Runs every linter: ruff, mypy, rooms, clang-format and clang-tidy.

`pip install '.[dev]'` installs all of them except `rooms`, which checks that a file in cc/ includes
only what BUILD lets its room include, and that a room's unity.cc includes all its sources.

Examples:
    tools/lint                          # everything; exit code 1 if anything is found
    tools/lint --fix                    # first fixes what ruff, rooms and clang-format can fix
    tools/lint --only ruff clang-tidy   # some of them
    tools/lint --since origin/main      # clang-tidy: only what has changed since that commit

clang-tidy parses TensorFlow's headers once for each room, through its unity.cc, and for every C++
test: 10 to 30 s each. It rechecks a clean file only when that file, a header of ours that it
includes, the checks, clang-tidy or TensorFlow has changed (`build/lint` remembers the clean files).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import build_file  # noqa: E402
import ninja_build  # noqa: E402
import tf_config  # noqa: E402

CLEAN = ROOT / "build" / "lint"


def tool(name: str) -> str:
    """Returns the path of a linter, preferably the one next to this Python, otherwise from PATH."""
    beside = pathlib.Path(sys.executable).parent
    found = shutil.which(name, path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        sys.exit(f"{name} is not installed. Run `{sys.executable} -m pip install '.[dev]'`.")
    return found


def succeeds(*command: str) -> bool:
    return subprocess.run(command, cwd=ROOT).returncode == 0


def cc_files(*suffixes: str) -> list[str]:
    found = (path.relative_to(ROOT) for path in (ROOT / "cc").rglob("*"))
    return sorted(str(path) for path in found if path.suffix in suffixes)


def run_ruff(options: argparse.Namespace) -> bool:
    ruff = tool("ruff")
    checked = succeeds(ruff, "check", *(["--fix"] if options.fix else []), ".")
    formatted = succeeds(ruff, "format", *([] if options.fix else ["--check"]), ".")
    return checked and formatted


def run_mypy(_: argparse.Namespace) -> bool:
    return succeeds(tool("mypy"))


def run_clang_format(options: argparse.Namespace) -> bool:
    files = cc_files(".cc", ".h")
    mode = ["-i"] if options.fix else ["--dry-run", "-Werror"]
    return not files or succeeds(tool("clang-format"), *mode, *files)


def run_rooms(options: argparse.Namespace) -> bool:
    targets = build_file.read_build(ROOT)
    stale = build_file.stale_unity_files(ROOT, targets)
    if options.fix:
        for name, text in stale.items():
            (ROOT / name).write_text(text)
        stale = {}
    found = [
        *(f"{name} does not include what BUILD compiles together." for name in stale),
        *build_file.misplaced_includes(ROOT, targets),
        *build_file.unused_deps(ROOT, targets),
    ]
    print("\n".join(found), end="\n" if found else "", flush=True)
    return not found


def reached(file: str, seen: set[str]) -> set[str]:
    """Adds the file and all of the project's headers that it includes to `seen`, transitively."""
    if file not in seen and (ROOT / file).is_file():
        seen.add(file)
        for header in build_file.own_includes(ROOT, file):
            reached(header, seen)
    return seen


def fingerprint(file: str, common: str) -> str:
    """Returns a key for everything on which clang-tidy's result for the file depends."""
    digest = hashlib.sha256(common.encode())
    for path in sorted(reached(file, set())):
        digest.update(path.encode() + b"\0" + (ROOT / path).read_bytes() + b"\0")
    return digest.hexdigest()


def tidy(command: Sequence[str], file: str, options: Iterable[str], folder: pathlib.Path) -> str:
    """Returns the output of clang-tidy for a file, empty if there are no findings."""
    options = [option for option in options if option not in tf_config.GCC_ONLY]
    run = subprocess.run(
        [*command, file, "--", "-x", "c++", *options],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    return "" if run.returncode == 0 else (run.stdout + run.stderr).strip() or "clang-tidy failed"


def changed_files(commit: str) -> set[str]:
    """Returns the files that differ from those of a commit."""
    run = subprocess.run(
        ["git", "diff", "--name-only", commit], cwd=ROOT, capture_output=True, text=True
    )
    if run.returncode:
        sys.exit(f"--since {commit}: {run.stderr.strip()}")
    return set(run.stdout.split())


def run_clang_tidy(options: argparse.Namespace) -> bool:
    clang_tidy = tool("clang-tidy")
    version = subprocess.run([clang_tidy, "--version"], capture_output=True, text=True, check=True)
    tensorflow = tf_config.find_tensorflow()
    checks = (ROOT / ".clang-tidy").read_text()
    changed = changed_files(options.since) if options.since else None
    units = {
        target.unity: [*tf_config.BAZEL_SUFFIX, *target.copts]
        for target in build_file.read_build(ROOT).values()
        if target.unity
        and (changed is None or not changed.isdisjoint({*target.files, *target.hdrs}))
    }
    names = {}
    for file, copts in units.items():
        common = "\n".join([version.stdout, tensorflow.version, checks, *copts])
        names[file] = fingerprint(file, common)
    CLEAN.mkdir(parents=True, exist_ok=True)
    for old in CLEAN.iterdir() if changed is None else ():
        if old.name not in names.values():
            old.unlink()
    # Long files first, so that the last one to finish is short.
    todo = sorted(
        (file for file in names if not (CLEAN / names[file]).exists()),
        key=lambda file: (ROOT / file).read_text().count("#include"),
        reverse=True,
    )
    folder = ninja_build.link_tree(tensorflow)
    command = [clang_tidy, "--quiet", f"--config-file={ROOT / '.clang-tidy'}"]
    clean = True
    with concurrent.futures.ThreadPoolExecutor(ninja_build.default_jobs()) as pool:
        results = {pool.submit(tidy, command, file, units[file], folder): file for file in todo}
        for result in concurrent.futures.as_completed(results):
            file, found = results[result], result.result()
            if found:
                clean = False
                print(f"{file}:\n{found}", flush=True)
            else:
                (CLEAN / names[file]).touch()
    print(f"clang-tidy looked at {len(todo)} of {len(names)} files", flush=True)
    return clean


LINTERS = {
    "ruff": run_ruff,
    "mypy": run_mypy,
    "rooms": run_rooms,
    "clang-format": run_clang_format,
    "clang-tidy": run_clang_tidy,
}


def main() -> None:
    """Runs the chosen linters. A finding does not stop the others."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--fix", action="store_true", help="fix what can be fixed automatically")
    parser.add_argument("--only", nargs="+", choices=sorted(LINTERS), default=list(LINTERS))
    parser.add_argument("--since", metavar="COMMIT", help="what clang-tidy compares with")
    arguments = parser.parse_args()
    failed = []
    for name in arguments.only:
        start = time.monotonic()
        if not LINTERS[name](arguments):
            failed.append(name)
        print(f"--- {name}: {time.monotonic() - start:.1f} s", flush=True)
    if failed:
        sys.exit(f"found by {', '.join(failed)}")


if __name__ == "__main__":
    main()
