"""Reads BUILD: its targets and their dependencies, and whether the sources follow them.

BUILD gives every folder of cc/ (a room) a library and lists the rooms that it needs. It is the only
place that says which room is above which, and which rooms are compiled as one unit;
`misplaced_includes` finds violations.
"""

from __future__ import annotations

import dataclasses
import glob as globbing
import pathlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import tf_config  # noqa: E402

RULES = ("cc_library", "cc_binary", "cc_test")
# The attributes of BUILD's rules that are kept for a target.
LISTS = (
    "srcs",
    "hdrs",
    "textual_hdrs",
    "copts",
    "linkopts",
    "additional_linker_inputs",
    "deps",
)
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
# Headers here replace TensorFlow's, and are included by TensorFlow's names.
STAND_INS = "cc/abi"
# The files of a room that include all its sources, and all its tests.
UNITY = ("unity.cc", "unity_tests.cc")
# The files that include the unity.cc of several rooms.
UNITS = "cc/units"


@dataclasses.dataclass(frozen=True)
class Target:
    """One rule of BUILD: its name, what it compiles, and how it is linked."""

    kind: str
    name: str
    testonly: bool = False
    srcs: tuple[str, ...] = ()
    hdrs: tuple[str, ...] = ()
    textual_hdrs: tuple[str, ...] = ()
    copts: tuple[str, ...] = ()
    linkopts: tuple[str, ...] = ()
    additional_linker_inputs: tuple[str, ...] = ()
    deps: tuple[str, ...] = ()

    @property
    def sources(self) -> list[str]:
        """The files to compile: a room has none, because its unit compiles it."""
        return [path for path in self.srcs if path.endswith(".cc")]

    @property
    def files(self) -> list[str]:
        """The files to compile when each is compiled by itself: a unit has none."""
        if self.textual_hdrs or self.unit:
            return [path for path in self.textual_hdrs if path != self.unity]
        return self.sources

    @property
    def unity(self) -> str | None:
        """The room's or the tests' file that includes all others, if there is one."""
        paths = (*self.srcs, *self.textual_hdrs)
        return next((path for path in paths if pathlib.PurePath(path).name in UNITY), None)

    @property
    def unit(self) -> str | None:
        """The file that includes the unity files of several rooms, if this is a unit."""
        return next((path for path in self.srcs if path.startswith(f"{UNITS}/")), None)

    @property
    def own_deps(self) -> list[str]:
        """The names of the BUILD targets on which it depends."""
        return [dep.lstrip(":") for dep in self.deps if not dep.startswith("@")]


def read_build(root: pathlib.Path) -> dict[str, Target]:
    """Evaluates BUILD and returns its targets by name.

    Raises:
        ValueError: A target appears twice, uses a dependency that is not in the file, or needs
            itself.
    """
    targets: dict[str, Target] = {}

    def rule(kind: str) -> Callable[..., None]:
        def define(name: str, **attributes: Any) -> None:
            if name in targets:
                raise ValueError(f"BUILD defines {name} twice")
            kept = {key: tuple(attributes.get(key, ())) for key in LISTS}
            testonly = attributes.get("testonly", kind == "cc_test")
            targets[name] = Target(kind, name, testonly, **kept)

        return define

    def glob(include: Iterable[str], exclude: Iterable[str] = ()) -> list[str]:
        def find(patterns: Iterable[str]) -> set[str]:
            return {
                path
                for pattern in patterns
                for path in globbing.glob(pattern, root_dir=root, recursive=True)
            }

        return sorted(find(include) - find(exclude))

    scope = {
        "load": lambda *_names: None,
        "glob": glob,
        "TF_COPTS": list(tf_config.COPTS),
        "TF_LINKOPTS": list(tf_config.LINKOPTS),
        "BAZEL_FEATURES": [],
        **{kind: rule(kind) for kind in RULES},
    }
    path = root / "BUILD"
    exec(compile(path.read_text(), str(path), "exec"), scope)
    for target in targets.values():
        for dep in target.own_deps:
            if dep not in targets:
                raise ValueError(f"{target.name} in BUILD depends on :{dep}, which is not in BUILD")
        if target.name in needed(targets, target.own_deps):
            raise ValueError(f"{target.name} in BUILD depends on itself")
    return targets


def needed(targets: Mapping[str, Target], names: Iterable[str]) -> list[str]:
    """Returns the named targets and all their dependencies, in the order of BUILD."""
    found: set[str] = set()
    ahead = list(names)
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead += targets[name].own_deps
    return [name for name in targets if name in found]


def own_includes(root: pathlib.Path, file: str) -> list[str]:
    """Returns the paths of the project's headers that the file includes directly."""
    paths = []
    for name in INCLUDE.findall((root / file).read_text()):
        if name.startswith("cc/"):
            paths.append(name)
        elif (root / STAND_INS / name).is_file():
            paths.append(f"{STAND_INS}/{name}")
    return paths


def together(targets: Mapping[str, Target]) -> dict[str, str]:
    """Returns the required text of each file that includes others to compile them together."""
    texts = {}
    for target in targets.values():
        if target.unit:
            unities = [targets[dep].unity for dep in target.own_deps]
            texts[target.unit] = _text_including(
                sorted(filter(None, unities)), "rooms of this unit"
            )
        elif target.unity:
            what = "tests" if target.testonly else "sources"
            texts[target.unity] = _text_including(target.files, f"{what} of this room")
    return texts


def _text_including(files: Iterable[str], what: str) -> str:
    includes = "".join(f'#include "{file}"\n' for file in files)
    return (
        f"// All {what}, to compile together: `tools/lint --fix` writes this.\n"
        "// NOLINTBEGIN(bugprone-suspicious-include)\n"
        f"{includes}"
        "// NOLINTEND(bugprone-suspicious-include)\n"
    )


def stale_unity_files(root: pathlib.Path, targets: Mapping[str, Target]) -> dict[str, str]:
    """Returns the files that do not include exactly what they should, with their required texts."""

    def is_stale(path: pathlib.Path, text: str) -> bool:
        return not path.exists() or path.read_text() != text

    return {name: text for name, text in together(targets).items() if is_stale(root / name, text)}


def misplaced_includes(root: pathlib.Path, targets: Mapping[str, Target]) -> Iterator[str]:
    """Yields a message for each include from a room that BUILD does not list for the file."""
    owners = _owners(targets)
    for target in targets.values():
        # A test may include everything that it links.
        allowed = needed(targets, target.own_deps) if target.testonly else target.own_deps
        names = ", ".join(f":{room}" for room in sorted(allowed)) or "itself"
        for file in (*target.files, *target.hdrs):
            for header in own_includes(root, file):
                owner = owners.get(header)
                if owner is None:
                    yield f"{file} includes {header}, which belongs to no library of BUILD."
                elif owner not in (target.name, *allowed):
                    yield (
                        f"{file} includes {header} of :{owner}, but :{target.name} may include "
                        f"only {names}. Move the file, or what it needs; docs/architecture.md "
                        "says what belongs in which room."
                    )


def unused_deps(root: pathlib.Path, targets: Mapping[str, Target]) -> Iterator[str]:
    """Yields a message for each room that BUILD lists for a room that does not include it."""
    owners = _owners(targets)
    for target in targets.values():
        files = (*target.files, *target.hdrs)
        included = {owners.get(header) for file in files for header in own_includes(root, file)}
        if target.hdrs:
            for dep in sorted(set(target.own_deps) - included):
                yield f":{target.name} in BUILD depends on :{dep}, but includes nothing of it."


def _owners(targets: Mapping[str, Target]) -> dict[str, str]:
    """Returns the library of each file."""
    return {
        file: target.name
        for target in targets.values()
        if target.kind == "cc_library"
        for file in (*target.srcs, *target.hdrs)
    }
