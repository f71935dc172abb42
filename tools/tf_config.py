"""Finds the installed TensorFlow, and the compiler options for code to be loaded into it.

Bazel (through tf_configure.bzl) and ninja_build.py both take their options from here, so the two
builds cannot differ. TensorFlow is located, not imported: importing it takes seconds.

Example:
    $ python tools/tf_config.py
    {"root": "...", "version": "2.21.0", "copts": ["-std=c++17", ...], "linkopts": [...]}
"""

from __future__ import annotations

import dataclasses
import importlib.machinery
import importlib.metadata
import json
import pathlib
import site
import sys
import sysconfig

# The minor versions of TensorFlow that the native part compiles against and the package is tested
# on.
MINORS = ("2.19", "2.20", "2.21")
# The newest Python 3 for which each has wheels.
NEWEST_PYTHON = {"2.19": 12, "2.20": 13, "2.21": 13}

# An environment variable: a folder with libraries that tools/build_wheel has built, one for each
# minor version, which the package uses instead of building one.
BUILT_VARIABLE = "TF_TPU_EXT_LIBRARIES"

# Both builds run the compiler in a folder where this path leads to TensorFlow. With relative paths,
# both builds and pip's temporary environments can share a compiler cache.
TF_LINK = "external/local_config_tf"
INCLUDE = f"{TF_LINK}/include"

# GCC looks for memory to reuse less often: an eighth less time, for a fifteenth more memory.
RARE_COLLECTIONS = ("--param=ggc-min-expand=300", "--param=ggc-min-heapsize=524288")

# The headers of cc/abi come before TensorFlow's. Warnings in TensorFlow's are ignored.
COPTS = (
    "-std=c++17",
    "-O2",
    "-g0",
    *RARE_COLLECTIONS,
    "-DNDEBUG",
    "-D_GLIBCXX_USE_CXX11_ABI=1",
    "-DEIGEN_MAX_ALIGN_BYTES=64",
    "-Wall",
    "-iquote",
    ".",
    "-Icc/abi",
    "-isystem",
    INCLUDE,
    "-isystem",
    f"{INCLUDE}/external/highwayhash",
    "-isystem",
    f"{INCLUDE}/external/farmhash_archive/src",
)

# What Bazel's toolchain adds around them by itself and cannot be told to leave out. The redacted
# dates make builds reproducible, and header paths stay as they are written: relative.
BAZEL_PREFIX = ("-fPIC",)
BAZEL_SUFFIX = (
    "-fno-canonical-system-headers",
    "-Wno-builtin-macro-redefined",
    '-D__DATE__="redacted"',
    '-D__TIMESTAMP__="redacted"',
    '-D__TIME__="redacted"',
)

# The options that clang does not have.
GCC_ONLY = frozenset({"-fno-canonical-system-headers", *RARE_COLLECTIONS})

LIBRARIES = ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2")

# Even if no symbol of libtensorflow_cc is needed by name at link time, static initializers need the
# library itself: --no-as-needed keeps it. $ORIGIN is the installed tf_tpu_ext folder, or a folder
# in it for a minor version of TensorFlow.
LINKOPTS = (
    "-Wl,--no-as-needed",
    "-Wl,--no-undefined",
    f"-L{TF_LINK}",
    *(f"-l:{name}" for name in LIBRARIES),
    "-Wl,-rpath,$ORIGIN/../tensorflow:$ORIGIN/../../tensorflow",
    "-pthread",
)


@dataclasses.dataclass(frozen=True)
class TensorFlow:
    """An installed TensorFlow.

    Attributes:
        root: The folder of the package.
        version: Its version, such as "2.21.0".
    """

    root: pathlib.Path
    version: str


def minor_of(version: str) -> str:
    """Returns the minor version of a version: "2.21" for "2.21.0"."""
    return ".".join(version.split(".")[:2])


def outer_folders() -> list[str]:
    """Returns the folders of this Python's packages, which pip hides from isolated builds."""
    return [*sysconfig.get_paths().values(), site.getusersitepackages()]


def _has_package(distribution: importlib.metadata.Distribution, package: str) -> bool:
    named = (distribution.read_text("top_level.txt") or "").split()
    return package in named or any(file.parts[0] == package for file in distribution.files or ())


def find_tensorflow() -> TensorFlow:
    """Finds the running interpreter's TensorFlow without importing it.

    A build that pip isolates uses the TensorFlow next to which the package will be installed,
    unless the build has one of its own.

    Raises:
        RuntimeError: There is none, it is not supported, or distributions of several versions
            share its folder.
    """
    folders = [*sys.path, *outer_folders()]
    spec = importlib.machinery.PathFinder.find_spec("tensorflow", folders)
    if spec is None or spec.origin is None:
        raise RuntimeError(
            f"TensorFlow is not installed for {sys.executable}. Install the version that "
            "pyproject.toml requires, with the package itself, as CONTRIBUTING.md says: "
            f"`{sys.executable} -m pip install -e '.[cpu,test,dev]'`."
        )
    root = pathlib.Path(spec.origin).parent
    owners = {
        found.name: found.version
        for found in importlib.metadata.distributions(path=[str(root.parent)])
        if found.name.lower().replace("_", "-").startswith(("tensorflow", "tf-nightly"))
        and "plugin" not in found.name.lower()
        and _has_package(found, "tensorflow")
    }
    if len(set(owners.values())) != 1:
        raise RuntimeError(
            f"Expected one TensorFlow in {spec.origin}, found {owners or 'no distribution'}. "
            "Uninstall all of them and install the one you want again."
        )
    version = next(iter(owners.values()))
    if minor_of(version) not in MINORS:
        raise RuntimeError(
            f"The native part compiles against TensorFlow {', '.join(MINORS)}; found {version} "
            f"in {spec.origin}. Run `{sys.executable} -m pip install 'tensorflow-cpu=="
            f"{MINORS[-1]}.*'`."
        )
    return TensorFlow(root, version)


def main() -> None:
    """Prints the configuration as JSON, for Bazel."""
    try:
        found = find_tensorflow()
    except RuntimeError as error:
        sys.exit(str(error))
    print(
        json.dumps(
            {
                "root": str(found.root),
                "version": found.version,
                "copts": COPTS,
                "linkopts": LINKOPTS,
                "libraries": LIBRARIES,
            }
        )
    )


if __name__ == "__main__":
    main()
