"""tools/build_file.py: what BUILD says, and whether the sources keep to it."""

from __future__ import annotations

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import build_file  # noqa: E402

BUILD = """
load("@local_config_tf//:flags.bzl", "TF_COPTS")

ROOMS = {"abi": [], "ground": ["abi"], "floor": ["ground"], "roof": ["floor", "ground"]}

[cc_library(
    name = room,
    srcs = glob(["cc/" + room + "/*.cc"], exclude = glob(["cc/**/*_test.cc"])),
    hdrs = glob(["cc/" + room + "/**/*.h"]),
    deps = [":" + dep for dep in deps] + ["@local_config_tf//:tensorflow"],
) for room, deps in ROOMS.items()]

[cc_test(
    name = source.replace("/", "_"),
    srcs = [source],
    deps = [":" + source.split("/")[1]],
) for source in glob(["cc/**/*_test.cc"])]
"""


@pytest.fixture
def root(tmp_path: pathlib.Path) -> pathlib.Path:
    files = {
        "BUILD": BUILD,
        "cc/abi/mlir/IR/Types.h": "",
        "cc/ground/stone.h": '#include "mlir/IR/Types.h"\n#include "absl/status/status.h"\n',
        "cc/ground/stone.cc": '#include "cc/ground/stone.h"\n',
        "cc/ground/stone_test.cc": '#include "cc/ground/stone.h"\n',
        "cc/floor/plank.h": '#include "cc/ground/stone.h"\n',
        "cc/floor/plank.cc": '#include "cc/floor/plank.h"\n',
        "cc/floor/plank_test.cc": '#include "cc/floor/plank.h"\n#include "cc/ground/stone.h"\n',
        "cc/roof/tile.h": '#include "cc/floor/plank.h"\n#include "cc/ground/stone.h"\n',
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_sources_that_keep_to_it(root: pathlib.Path) -> None:
    targets = build_file.read_build(root)
    assert not list(build_file.misplaced_includes(root, targets))
    assert not list(build_file.unused_deps(root, targets))


@pytest.mark.parametrize(
    ("file", "header", "room", "owner"),
    [
        ("cc/ground/stone.cc", "cc/roof/tile.h", "ground", "roof"),
        ("cc/ground/stone_test.cc", "cc/floor/plank.h", "cc_ground_stone_test.cc", "floor"),
        # BUILD does not name what only another room needs.
        ("cc/floor/plank.cc", "mlir/IR/Types.h", "floor", "abi"),
    ],
)
def test_an_include_of_a_room_that_is_not_named(
    root: pathlib.Path, file: str, header: str, room: str, owner: str
) -> None:
    with (root / file).open("a") as source:
        source.write(f'#include "{header}"\n')
    (error,) = build_file.misplaced_includes(root, build_file.read_build(root))
    assert file in error
    assert header in error
    assert f":{room} may include" in error
    assert f":{owner}" in error


def test_an_include_of_nothing(root: pathlib.Path) -> None:
    (root / "cc/floor/plank.cc").write_text('#include "cc/floor/plan.h"\n')
    (error,) = build_file.misplaced_includes(root, build_file.read_build(root))
    assert error.startswith("cc/floor/plank.cc includes cc/floor/plan.h, which belongs to no")


def test_a_room_that_is_named_and_not_needed(root: pathlib.Path) -> None:
    (root / "cc/roof/tile.h").write_text('#include "cc/floor/plank.h"\n')
    (error,) = build_file.unused_deps(root, build_file.read_build(root))
    assert error == ":roof in BUILD depends on :ground, but includes nothing of it."


def test_rooms_that_need_each_other(root: pathlib.Path) -> None:
    (root / "BUILD").write_text(BUILD.replace('"abi": []', '"abi": ["roof"]'))
    with pytest.raises(ValueError, match="abi in BUILD depends on itself"):
        build_file.read_build(root)


def test_a_room_that_is_missing(root: pathlib.Path) -> None:
    (root / "BUILD").write_text(BUILD.replace('"abi": []', '"abi": ["cellar"]'))
    with pytest.raises(ValueError, match="abi in BUILD depends on :cellar, which is not in BUILD"):
        build_file.read_build(root)


def test_a_test_links_its_room_and_what_that_needs(root: pathlib.Path) -> None:
    targets = build_file.read_build(root)
    needed = build_file.needed(targets, ["cc_floor_plank_test.cc"])
    assert needed == ["abi", "ground", "floor", "cc_floor_plank_test.cc"]
    assert targets["ground"].sources == ["cc/ground/stone.cc"]


def test_rooms_that_are_compiled_together(root: pathlib.Path) -> None:
    (root / "BUILD").write_text(
        """
[cc_library(
    name = room,
    hdrs = glob(["cc/" + room + "/*.h"]),
    textual_hdrs = ["cc/" + room + "/" + name for name in names] + ["cc/" + room + "/unity.cc"],
) for room, names in {"ground": ["stone.cc"], "floor": ["board.cc", "plank.cc"]}.items()]

cc_library(
    name = "lower_unit",
    srcs = ["cc/units/lower.cc"],
    deps = [":ground", ":floor"],
)
"""
    )
    targets = build_file.read_build(root)
    assert targets["floor"].sources == []
    assert targets["floor"].files == ["cc/floor/board.cc", "cc/floor/plank.cc"]
    assert targets["lower_unit"].sources == ["cc/units/lower.cc"]
    assert targets["lower_unit"].files == []

    stale = build_file.stale_unity_files(root, targets)
    included = {name: build_file.INCLUDE.findall(text) for name, text in stale.items()}
    assert included == {
        "cc/ground/unity.cc": ["cc/ground/stone.cc"],
        "cc/floor/unity.cc": ["cc/floor/board.cc", "cc/floor/plank.cc"],
        "cc/units/lower.cc": ["cc/floor/unity.cc", "cc/ground/unity.cc"],
    }
    for name, text in stale.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    assert not build_file.stale_unity_files(root, targets)
    (root / "cc/units/lower.cc").write_text("// empty\n")
    assert list(build_file.stale_unity_files(root, targets)) == ["cc/units/lower.cc"]


def test_the_project() -> None:
    targets = build_file.read_build(ROOT)
    assert not list(build_file.misplaced_includes(ROOT, targets))
    assert not list(build_file.unused_deps(ROOT, targets))


def test_the_library_is_linked_again_when_its_exports_change() -> None:
    library = build_file.read_build(ROOT)["libtf_tpu_ext_ops.so"]
    (exports,) = library.additional_linker_inputs
    assert (ROOT / exports).is_file()
    assert f"-Wl,--version-script={exports}" in library.linkopts
