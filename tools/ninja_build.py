"""Builds the targets of BUILD with ninja and g++, without Bazel.

Examples:
    python tools/ninja_build.py                        # library, into tf_tpu_ext/
    python tools/ninja_build.py --run-tests            # library and C++ tests, then runs the tests
    python tools/ninja_build.py --run-tests QueueTest  # only suites whose name contains this
    python tools/ninja_build.py --quick --files        # for development: see below
    python tools/ninja_build.py --sanitize address --no-install --run-tests

A quick build uses clang++ and a precompiled header, and does not optimize: two cores build the
library and all tests in three minutes, and a changed file in seconds. Builds with a sanitizer are
quick builds too.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import build_file  # noqa: E402
import precompiled_header  # noqa: E402
import tf_config  # noqa: E402

LIBRARY = "libtf_tpu_ext_ops.so"
# What it takes to compile a unit that includes XLA.
BYTES_OF_A_JOB = 3_000_000_000
# For a program of tests: a sanitizer makes them ten times slower.
TEST_TIMEOUT_SECONDS = 900
# What the compiler is told for each choice.
SANITIZERS = {"address": "address,undefined", "thread": "thread"}
# In older versions, ThreadSanitizer can't be preloaded.
OLDEST_CLANG = 16
PRECOMPILED = "precompiled.h"


def clang() -> str:
    """Returns the clang++ for quick builds: CXX if it is one, or the oldest that is new enough."""
    named = os.environ.get("CXX", "")
    if "clang" in named:
        return named
    for version in range(OLDEST_CLANG, OLDEST_CLANG + 10):
        found = shutil.which(f"clang++-{version}")
        if found:
            return found
    raise RuntimeError(
        f"Quick builds and sanitizers need clang++ {OLDEST_CLANG} or newer. Run `apt-get install "
        f"clang-{OLDEST_CLANG} libclang-rt-{OLDEST_CLANG}-dev llvm-{OLDEST_CLANG}`, or name one "
        "in CXX."
    )


@dataclasses.dataclass(frozen=True)
class Toolchain:
    """The compiler of a build, and what it is told in addition to BUILD's options.

    Attributes:
        compiler: The command.
        replaced: BUILD's options that are left out.
        copts: Options added to them.
        linkopts: The same for linking.
        precompiles: Whether files start from a precompiled header.
    """

    compiler: str
    replaced: frozenset[str] = frozenset()
    copts: tuple[str, ...] = ()
    linkopts: tuple[str, ...] = ()
    precompiles: bool = False

    def options(self, copts: Iterable[str]) -> list[str]:
        """Returns the compiler's options for a target of BUILD with these."""
        given = [*tf_config.BAZEL_PREFIX, *copts, *tf_config.BAZEL_SUFFIX]
        return [option for option in given if option not in self.replaced] + [*self.copts]


def optimizing() -> Toolchain:
    """Returns the toolchain for what users run."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which("ccache") and "ccache" not in compiler:
        compiler = f"ccache {compiler}"
    # Like Bazel. ld takes three times as long to read TensorFlow's library.
    linkopts = ("-fuse-ld=gold",) if shutil.which("ld.gold") else ()
    return Toolchain(compiler, linkopts=linkopts)


def quick(sanitize: str | None) -> Toolchain:
    """Returns the toolchain for quick builds, optionally with a sanitizer."""
    compiler = clang()
    linkopts = ["-fuse-ld=lld"] if shutil.which("ld.lld") else ["-fuse-ld=gold"]
    copts = ["-O0", "-Wno-deprecated-declarations"]
    if sanitize:
        copts += [f"-fsanitize={SANITIZERS[sanitize]}", "-fno-omit-frame-pointer", "-g1"]
        # These checks need type information of TensorFlow's classes, which is missing.
        copts += ["-fno-sanitize=vptr,function"] if sanitize == "address" else []
        # The runtime is preloaded: the Python executable does not have it.
        linkopts += [f"-fsanitize={SANITIZERS[sanitize]}", "-shared-libsan"]
    return Toolchain(compiler, tf_config.GCC_ONLY | {"-O2"}, tuple(copts), tuple(linkopts), True)


class Writer:
    """Writes the ninja file of one configuration."""

    def __init__(self, tensorflow: tf_config.TensorFlow, toolchain: Toolchain) -> None:
        self._toolchain = toolchain
        # Tests run where they are built, so they can't find TensorFlow through $ORIGIN.
        self._test_linkopts = [f"-Wl,-rpath,{tensorflow.root}"]
        self._lines = [
            "ninja_required_version = 1.10",
            "rule compile",
            f"  command = {toolchain.compiler} $copts -MD -MF $out.d -c $in -o $out",
            "  depfile = $out.d",
            "  deps = gcc",
            "  description = compile $in",
            "rule link",
            # Objects are passed in a file, because the length of command lines is limited.
            f"  command = {toolchain.compiler} $mode @$out.objects $linkopts -o $out",
            "  rspfile = $out.objects",
            "  rspfile_content = $in_newline",
            "  description = link $out",
        ]
        self._before = ["tensorflow.stamp"]
        if toolchain.precompiles:
            options = [*toolchain.options(tf_config.COPTS), "-fpch-instantiate-templates"]
            self._lines += [
                f"build {PRECOMPILED}.pch: compile {PRECOMPILED} | tensorflow.stamp",
                f"  copts = {_ninja_quote([*options, '-x', 'c++-header'])}",
            ]
            self._before.append(f"{PRECOMPILED}.pch")

    def add(self, target: build_file.Target, objects: Sequence[str]) -> str:
        """Adds the link step of a target from objects; returns the path of the result."""
        shared = target.kind == "cc_binary"
        out = target.name if shared else f"tests/{target.name}"
        linkopts = [*self._toolchain.linkopts, *target.linkopts]
        linkopts += [] if shared else self._test_linkopts
        inputs = " ".join(["tensorflow.stamp", *target.additional_linker_inputs])
        self._lines += [
            f"build {out}: link {' '.join(objects)} | {inputs}",
            f"  mode = {'-shared' if shared else ''}",
            f"  linkopts = {_ninja_quote(linkopts)}",
        ]
        return out

    def compile(self, target: build_file.Target, sources: Iterable[str]) -> list[str]:
        """Adds the compilations of a target's sources; returns their object files."""
        objects = []
        options = self._toolchain.options(target.copts)
        if self._toolchain.precompiles:
            options += ["-include-pch", f"{PRECOMPILED}.pch"]
        for source in sources:
            objects.append(f"objects/{source[: -len('.cc')]}.o")
            self._lines += [
                f"build {objects[-1]}: compile {source} | {' '.join(self._before)}",
                f"  copts = {_ninja_quote(options)}",
            ]
        return objects

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def _ninja_quote(options: Iterable[str]) -> str:
    return " ".join(shlex.quote(option).replace("$", "$$") for option in options)


def link_tree(tensorflow: tf_config.TensorFlow, kind: str | None = None) -> pathlib.Path:
    """Returns a folder like the one in which Bazel compiles, with our cc/ next to external/.

    Args:
        tensorflow: The TensorFlow to compile for.
        kind: "quick", a sanitizer, or None for the build that users get.
    """
    folder = ROOT / "build" / ("native" + (f"-{kind}" if kind else ""))
    links = {
        folder / "cc": ROOT / "cc",
        folder / tf_config.INCLUDE: tensorflow.root / "include",
        **{
            folder / tf_config.TF_LINK / name: tensorflow.root / name
            for name in tf_config.LIBRARIES
        },
    }
    for link, goal in links.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.is_symlink() and link.readlink() == goal:
            continue
        link.unlink(missing_ok=True)
        link.symlink_to(goal, target_is_directory=goal.is_dir())
    # Headers of another TensorFlow may be older than the objects, so file times are not enough.
    _write_if_changed(folder / "tensorflow.stamp", f"{tensorflow.root}\n{tensorflow.version}\n")
    return folder


def _write_if_changed(path: pathlib.Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def _ninja() -> str:
    # In pip's build environments, it is only on PATH; a virtual environment may not be on PATH.
    found = shutil.which("ninja")
    if found is None and importlib.util.find_spec("ninja"):
        found = shutil.which("ninja", path=importlib.import_module("ninja").BIN_DIR)
    if found is None:
        sys.exit(f"ninja is not installed. Run `{sys.executable} -m pip install ninja`.")
    return found


def _available_bytes() -> int:
    """How much more memory this process may use."""
    meminfo = pathlib.Path("/proc/meminfo").read_text()
    found = re.search(r"^MemAvailable:\s*(\d+) kB", meminfo, re.MULTILINE)
    available = int(found.group(1)) * 1024 if found else os.sysconf("SC_PHYS_PAGES") * 4096
    limit = pathlib.Path("/sys/fs/cgroup/memory.max")  # of a container
    if limit.exists() and (text := limit.read_text().strip()).isdigit():
        available = min(available, int(text))
    return available


def default_jobs() -> int:
    """Returns how many compilers this machine can run at once."""
    return max(1, min(len(os.sched_getaffinity(0)), _available_bytes() // BYTES_OF_A_JOB))


def build(
    install: pathlib.Path | None,
    *,
    tests: bool = False,
    sanitize: str | None = None,
    quickly: bool = False,
    files: bool = False,
    jobs: int | None = None,
) -> pathlib.Path:
    """Builds the library, and optionally the C++ tests.

    Args:
        install: The folder that the library is put into, or None to leave it where it is built.
        tests: Whether to build the C++ tests too.
        sanitize: "address", "thread" or None.
        quickly: Compile without optimization, with clang++ and a precompiled header.
        files: Compile every file separately instead of several rooms as one unit.
        jobs: How many compilers run at once; None for as many as the machine can handle.

    Returns:
        The folder of the build, with the library in it and the tests under `tests/`.

    Raises:
        RuntimeError: There is no TensorFlow to build for, or more than one, or no clang++ for a
            quick build.
        subprocess.CalledProcessError: The compiler or the linker failed.
    """
    tensorflow = tf_config.find_tensorflow()
    folder = link_tree(tensorflow, sanitize or ("quick" if quickly else None))
    targets = build_file.read_build(ROOT)
    wrong = list(build_file.misplaced_includes(ROOT, targets))
    wrong += [
        f"{name} does not include what BUILD compiles together. Run `tools/lint --fix`."
        for name in build_file.stale_unity_files(ROOT, targets)
    ]
    if wrong:
        raise ValueError("\n".join(wrong))
    toolchain = quick(sanitize) if quickly or sanitize else optimizing()
    if toolchain.precompiles:
        _write_if_changed(folder / PRECOMPILED, precompiled_header.header_text(ROOT))
    writer = Writer(tensorflow, toolchain)
    objects = {
        name: writer.compile(target, target.files if files else target.sources)
        for name, target in targets.items()
    }
    wanted = []
    for target in targets.values():
        if target.kind == "cc_library" or (target.kind == "cc_test" and not tests):
            continue
        needed = build_file.needed(targets, [target.name])
        wanted.append(writer.add(target, [path for name in needed for path in objects[name]]))
    (folder / "build.ninja").write_text(writer.text())
    command = [_ninja(), "-C", str(folder), "-j", str(jobs or default_jobs()), *wanted]
    subprocess.run(command, check=True)
    database = subprocess.run(
        [_ninja(), "-C", str(folder), "-t", "compdb", "compile"],
        check=True,
        capture_output=True,
        text=True,
    )
    (folder / "compile_commands.json").write_text(database.stdout)
    if install is not None:
        install.mkdir(parents=True, exist_ok=True)
        # A running process may have the old library mapped, so replace the file.
        fresh = install / f".{LIBRARY}.new"
        shutil.copy2(folder / LIBRARY, fresh)
        os.replace(fresh, install / LIBRARY)
        (install / "_built_for.py").write_text(
            '"""Written by the build: the TensorFlow that the library was compiled for."""\n\n'
            f'TF_VERSION = "{tensorflow.version}"\n'
        )
    return folder


def _run_program(
    program: pathlib.Path, pattern: str, environment: Mapping[str, str]
) -> tuple[int, bool, float, str]:
    """Returns how many tests ran, whether all passed, how many seconds it took, and the output."""
    start = time.monotonic()
    try:
        run = subprocess.run(
            [str(program), f"--gtest_filter=*{pattern}*.*"],
            capture_output=True,
            text=True,
            errors="replace",
            env=environment,
            timeout=TEST_TIMEOUT_SECONDS,
        )
        output, passed = run.stdout + run.stderr, run.returncode == 0
    except subprocess.TimeoutExpired as error:
        # Its last line names the test that hangs.
        printed = (error.stdout or b"").decode(errors="replace")
        output, passed = f"{printed}did not end within {TEST_TIMEOUT_SECONDS} s\n", False
    ended = re.findall(r"^\[ +(?:OK|FAILED) +\] .* \(\d+ ms\)$", output, re.MULTILINE)
    return len(ended), passed, time.monotonic() - start, output


def run_tests(
    folder: pathlib.Path,
    pattern: str,
    variables: Mapping[str, str] | None = None,
    jobs: int | None = None,
) -> bool:
    """Runs the tests under `folder` whose suite's name contains `pattern`, a process a program.

    Returns whether there were any, and all passed.
    """
    known = {t.name for t in build_file.read_build(ROOT).values() if t.kind == "cc_test"}
    programs = sorted(path for path in (folder / "tests").iterdir() if path.name in known)
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "1", **(variables or {})}
    failed, count = [], 0
    with concurrent.futures.ThreadPoolExecutor(jobs or default_jobs()) as pool:
        runs = {
            pool.submit(_run_program, program, pattern, environment): program.name
            for program in programs
        }
        for run in concurrent.futures.as_completed(runs):
            ended, passed, seconds, output = run.result()
            count += ended
            if not passed:
                failed.append(runs[run])
                print(output, flush=True)
            if ended or not passed:
                result = "passed" if passed else "FAILED"
                print(f"{result} {runs[run]}: {ended} tests ({seconds:.1f} s)", flush=True)
    print(f"{count} C++ tests ran" + "".join(f"; {name} FAILED" for name in failed), flush=True)
    return count > 0 and not failed


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("install", nargs="?", type=pathlib.Path, default=ROOT / "tf_tpu_ext")
    parser.add_argument("--no-install", action="store_true", help="leave the library in build/")
    parser.add_argument("--tests", action="store_true", help="build the C++ tests too")
    parser.add_argument("--run-tests", nargs="?", const="", metavar="SUITE", help="and run them")
    parser.add_argument("--sanitize", choices=sorted(SANITIZERS))
    parser.add_argument("--quick", action="store_true", help="for development, by clang++")
    parser.add_argument("--files", action="store_true", help="compile every file for itself")
    parser.add_argument("--jobs", type=int, help="compilers at once; else what the machine takes")
    options = parser.parse_args(arguments)
    try:
        folder = build(
            None if options.no_install else options.install.resolve(),
            tests=options.tests or options.run_tests is not None,
            sanitize=options.sanitize,
            quickly=options.quick,
            files=options.files,
            jobs=options.jobs,
        )
    except (RuntimeError, ValueError) as error:
        sys.exit(str(error))
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    if options.run_tests is not None and not run_tests(
        folder, options.run_tests, jobs=options.jobs
    ):
        sys.exit(1)


if __name__ == "__main__":
    main()
