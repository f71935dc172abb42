"""tools/abi_check: what a library needs and another TensorFlow lacks, by header."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import abi_check  # noqa: E402
import tf_config  # noqa: E402

HEADER = """
namespace absl { inline namespace lts_1 { template <class T> struct Span {}; } }
namespace xla {
class Shape {
 public:
  void set(int);
  int rank() const;
};
int Count(absl::Span<int> span);
}
"""
OURS = "namespace mlir { class Operation { public: void print(); }; }"
FRAMEWORK = '#include "xla/shape.h"\n#include "mlir/op.h"\n'
DEFINED = {
    "set": "void xla::Shape::set(int) {}",
    "rank": "int xla::Shape::rank() const { return 0; }",
    "Count": "int xla::Count(absl::Span<int>) { return 0; }",
    "print": "void mlir::Operation::print() {}",
}
USED = """
extern "C" int use() {
  xla::Shape shape;
  shape.set(1);
  mlir::Operation().print();
  return shape.rank() + xla::Count({});
}
"""


def compile_library(path: pathlib.Path, code: str, *options: str) -> None:
    command = ["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(path), *options]
    subprocess.run(command, input=code, text=True, check=True)


@pytest.fixture
def make_tensorflow(tmp_path):
    """Makes a folder with TensorFlow's libraries from a header and the functions to define."""

    def make(name: str, header: str, ours: str, functions: list[str]) -> pathlib.Path:
        folder = tmp_path / name / "lib" / "python3.11" / "site-packages" / "tensorflow"
        include = folder / "include"
        (include / "xla").mkdir(parents=True)
        (include / "xla" / "shape.h").write_text(header)
        (include / "mlir").mkdir()
        (include / "mlir" / "op.h").write_text(ours)
        framework, rest = tf_config.LIBRARIES
        code = FRAMEWORK + "\n".join(functions)
        compile_library(folder / framework, code, f"-I{include}")
        compile_library(folder / rest, "")
        return tmp_path / name

    return make


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    stand_in = folder / "cc" / "abi" / "mlir" / "op.h"
    stand_in.parent.mkdir(parents=True)
    stand_in.write_text(OURS)
    (folder / "cc" / "use.cc").write_text(FRAMEWORK + USED)
    return folder


@pytest.mark.skipif(shutil.which("g++") is None, reason="makes libraries with a compiler")
def test_what_is_missing_is_told_by_header(make_tensorflow, checkout, tmp_path):
    own = make_tensorflow("own", HEADER, OURS, list(DEFINED.values()))
    newer = HEADER.replace("lts_1", "lts_2").replace("set(int)", "set(long)")
    other = make_tensorflow(
        "other", newer, OURS, [DEFINED["set"].replace("int", "long"), DEFINED["Count"]]
    )
    root = abi_check.find_tensorflow(own)
    library = tmp_path / "library.so"
    compile_library(library, FRAMEWORK + USED, f"-I{root / 'include'}")
    needed = abi_check.needs(library, abi_check.exports(root))
    assert len(needed) == 4
    headers = list(abi_check.reached_headers(checkout, root / "include"))
    offered = abi_check.exports(abi_check.find_tensorflow(other))
    assert list(abi_check.report(*abi_check.compare(needed, offered, headers))) == [
        "cc/abi/mlir/op.h (declared by hand: compiling does not tell)",
        "  gone    mlir::Operation::print()",
        "xla/shape.h",
        "  gone    xla::Shape::rank() const",
        "  changed xla::Shape::set(int)",
        "          there: xla::Shape::set(long)",
        "1 symbols with names of absl follow from its headers",
    ]


@pytest.mark.parametrize(
    ("demangled", "expected"),
    [
        ("xla::Add(xla::XlaOp, absl::Span<long const>)", "xla::Add"),
        ("void a::B<int>::f<c::D>(int, a::E const&)", "a::B::f"),
        ("vtable for xla::Shape", "xla::Shape"),
        ("std::function<void (int)> a::f[abi:cxx11](int) const", "a::f"),
        ("xla::(anonymous namespace)::f()", "xla::anonymous::f"),
        ("a::B::operator<<(int)", "a::B::operator<<"),
        ("a::B::operator()(int) const", "a::B::operator()"),
        ("tsl::Future<void>::ready_promise_", "tsl::Future::ready_promise_"),
    ],
)
def test_qualified_names(demangled, expected):
    assert abi_check.qualified_name(demangled) == expected


def test_the_library_lacks_nothing_in_its_own_tensorflow():
    tool = [sys.executable, str(ROOT / "tools" / "abi_check.py")]
    import tf_tpu_ext

    library = tf_tpu_ext._native.library_file()
    own = tf_config.find_tensorflow().root
    done = subprocess.run(
        [*tool, str(own), "--library", str(library.path)],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("0 of ")
    needed = int(done.stdout.split()[2])
    assert needed > 500


def test_no_tensorflow_there(tmp_path):
    with pytest.raises(RuntimeError, match="Expected TensorFlow in"):
        abi_check.find_tensorflow(tmp_path)
