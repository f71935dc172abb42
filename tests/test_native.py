"""Loading of the native library: what is checked before it, and what each failure says."""

from __future__ import annotations

import ctypes
import pathlib
import re
import shutil
import subprocess

import pytest
import tensorflow as tf

import tf_tpu_ext
from tf_tpu_ext import _library, _native

LIBRARY = _native.library_file().path
IMPORT_AND_REPORT = """
    import sys
    {before}
    try:
        import tf_tpu_ext
        from tf_tpu_ext import _native
        _native.load()
    except Exception as error:
        print(type(error).__name__, error)
    else:
        print("loaded", _native.is_loaded())
"""


@pytest.fixture
def fresh(monkeypatch):
    """The module as in a process that has loaded nothing yet."""
    monkeypatch.setattr(_native, "_state", _native._State())
    # TensorFlow has the virtual cores and the kernels of this very process.
    monkeypatch.setattr(_native, "_find_tensorflow_tpu", lambda: None)
    monkeypatch.setattr(_native, "_tensorflow_has_kernels", lambda: False)
    return _native


@pytest.fixture
def built(monkeypatch):
    """Replaces the libraries that there are."""

    def replace(*versions: str, path: pathlib.Path = LIBRARY) -> None:
        found = [_library.Library(path, version) for version in versions]
        monkeypatch.setattr(_library, "find_all", lambda: found)

    return replace


@pytest.fixture
def package(monkeypatch, tmp_path):
    """A package folder without a library, which is not that of the tests; returns the folder."""
    folder = tmp_path / "checkout" / "tf_tpu_ext"
    folder.mkdir(parents=True)
    (folder / "_version.py").write_text(f'VERSION = "{tf_tpu_ext.__version__}"\n')
    monkeypatch.setattr(_library, "PACKAGE", folder)
    monkeypatch.setattr(_library, "installed_packages", list)
    return folder


def add_library(package: pathlib.Path, version: str) -> pathlib.Path:
    package.mkdir(parents=True, exist_ok=True)
    (package / _library.NAME).touch()
    (package / _library.RECORD).write_text(f'TF_VERSION = "{version}"\n')
    return package / _library.NAME


def test_loaded_once_and_stays():
    assert _native.load()
    assert _native.is_loaded()
    assert _native.available()
    assert not _native.stepped_aside()
    assert _native.library() is _native.library()
    assert isinstance(_native.library(), ctypes.CDLL)
    assert _native.library_file().minor == _library.minor_of(tf.__version__)


@pytest.mark.skipif(shutil.which("nm") is None, reason="reads the library with nm")
def test_library_exports_its_entry_points_only():
    command = [
        "nm",
        "-D",
        "--extern-only",
        "--defined-only",
        "-f",
        "posix",
        _native.library_file().path,
    ]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = [line.split()[0] for line in listed.splitlines()]
    assert "TfTpuExt_Machine" in names
    assert [name for name in names if not name.startswith("TfTpuExt_")] == []


def test_reload_finds_the_resident_library(fresh):
    tf.constant(1) + 1
    assert fresh.load()
    assert fresh.is_loaded()


@pytest.mark.parametrize("found", ["2.20.0", "2.22.0-rc1", "3.21.0"])
def test_other_minor_is_refused_before_the_library_is_opened(fresh, monkeypatch, built, found):
    monkeypatch.setattr(fresh, "_open", lambda *_: pytest.fail("opened the library"))
    monkeypatch.setattr(tf, "__version__", found)
    monkeypatch.setattr(fresh, "_tensorflow_distribution", lambda: "tensorflow-cpu")
    built("2.21.0")
    with pytest.raises(ImportError) as caught:
        fresh.load()
    message = str(caught.value)
    assert "was built for TensorFlow 2.21 (2.21.0)" in message
    assert f"found TensorFlow {'.'.join(found.split('.')[:2])} ({found})" in message
    assert "pip install 'tensorflow-cpu==2.21.*'" in message
    assert not fresh.is_loaded()


def test_other_patch_is_accepted(fresh, built):
    built(f"{_library.minor_of(tf.__version__)}.7")
    assert fresh.load()


def test_library_of_the_same_minor_is_taken(fresh, built):
    minor = _library.minor_of(tf.__version__)
    built("2.1.0", tf.__version__, "2.99.0")
    assert fresh.load()
    assert fresh.library_file().minor == minor


def test_beside_another_minor_all_that_there_are_are_named(fresh, built, monkeypatch):
    built("2.20.0", "2.19.1")
    monkeypatch.setattr(tf, "__version__", "2.22.0")
    with pytest.raises(ImportError) as caught:
        fresh.load()
    message = str(caught.value)
    assert "was built for TensorFlow 2.19 (2.19.1) and 2.20 (2.20.0), found" in message
    assert "==2.20.*'" in message


def test_folder_for_each_minor(package):
    one = add_library(package / "tensorflow-2.20", "2.20.0")
    other = add_library(package / "tensorflow-2.21", "2.21.1")
    (package / "tensorflow-2.22").mkdir()
    assert _library.find_all() == [
        _library.Library(one, "2.20.0"),
        _library.Library(other, "2.21.1"),
    ]


def test_checkout_takes_the_installed_library_of_its_version(package, monkeypatch, tmp_path):
    installed = add_library(tmp_path / "site" / "tf_tpu_ext", "2.21.0")
    older = add_library(tmp_path / "older" / "tf_tpu_ext", "2.20.0")
    found = [(older.parent, "0.0.1"), (installed.parent, tf_tpu_ext.__version__)]
    monkeypatch.setattr(_library, "installed_packages", lambda: found)
    assert _library.find_all() == [_library.Library(installed, "2.21.0")]
    own = add_library(package, "2.20.0")
    assert _library.find_all() == [_library.Library(own, "2.20.0")]


def test_checkout_runs_beside_the_installed_package(run_python, tmp_path):
    """As after `pip install .`, with the checkout as the working folder."""
    ignored = shutil.ignore_patterns("*.so", "_built_for.py", "__pycache__")
    shutil.copytree(_library.PACKAGE, tmp_path / "checkout" / "tf_tpu_ext", ignore=ignored)
    site = tmp_path / "site"
    package = site / "tf_tpu_ext"
    add_library(package, tf.__version__).unlink()
    (package / "__init__.py").write_text("raise ImportError('this is not the checkout')")
    (package / _library.NAME).symlink_to(LIBRARY)
    metadata = site / f"tf_tpu_ext-{tf_tpu_ext.__version__}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Name: tf_tpu_ext\nVersion: {tf_tpu_ext.__version__}\n")
    code = """
        import sys
        sys.path[:0] = sys.argv[1:]
        import tf_tpu_ext
        print(tf_tpu_ext._native.library_file().path.parent)
        print(tf_tpu_ext.__file__, tf_tpu_ext.is_virtual())
    """
    printed = run_python(code, str(tmp_path / "checkout"), str(site)).stdout.split()
    own = tmp_path / "checkout" / "tf_tpu_ext" / "__init__.py"
    assert printed == [str(package), str(own), "True"]


def test_installed_package_of_another_version_is_named(fresh, package, monkeypatch, tmp_path):
    other = add_library(tmp_path / "site" / "tf_tpu_ext", "2.21.0").parent
    monkeypatch.setattr(_library, "installed_packages", lambda: [(other, "0.0.1")])
    with pytest.raises(ImportError, match=rf"0\.0\.1 is installed in {re.escape(str(other))}"):
        fresh.load()


@pytest.mark.parametrize(
    ("installed", "named"),
    [
        (["tensorflow-cpu"], "tensorflow-cpu"),
        (["tensorflow"], "tensorflow"),
        (["tensorflow-cpu", "tensorflow"], "tensorflow"),
    ],
)
def test_command_names_the_installed_distribution(monkeypatch, installed, named):
    monkeypatch.setattr(
        _native.importlib.metadata, "packages_distributions", lambda: {"tensorflow": installed}
    )
    libraries = [_library.Library(pathlib.Path("none"), "2.21.0")]
    with pytest.raises(ImportError, match=rf"pip install '{named}==2\.21\.\*'"):
        _native._choose_library(libraries, "2.20.1")


def test_missing_library_says_how_to_build(fresh, package):
    with pytest.raises(ImportError, match=r"not built: expected libtf_tpu_ext_ops.so.*pip install"):
        fresh.load()


def test_missing_library_in_a_checkout_names_the_build_tool(fresh, package):
    (package.parent / "tools").mkdir()
    (package.parent / "tools" / "ninja_build.py").touch()
    with pytest.raises(ImportError, match=r"run: python .*ninja_build\.py"):
        fresh.load()


def test_missing_record_of_tensorflow_is_a_missing_build(fresh, package):
    (package / _library.NAME).touch()
    with pytest.raises(ImportError, match=r"expected _built_for\.py"):
        fresh.load()


@pytest.mark.skipif(shutil.which("g++") is None, reason="makes a broken library with a compiler")
def test_undefined_symbol_is_explained(fresh, monkeypatch, package, built, tmp_path):
    path = tmp_path / "libtf_tpu_ext_ops.so"
    source = 'extern "C" int gone_in_this_tensorflow(); int kept = gone_in_this_tensorflow();'
    subprocess.run(
        ["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", path],
        input=source,
        text=True,
        check=True,
    )
    built(tf.__version__, path=path)
    monkeypatch.setattr(fresh, "_check_no_devices", lambda _: None)
    with pytest.raises(ImportError) as caught:
        fresh.load()
    message = str(caught.value)
    assert "gone_in_this_tensorflow" in message
    assert f"TensorFlow {tf.__version__} does not have" in message
    assert "run: pip install --force-reinstall" in message


def test_file_that_is_no_library_is_explained(fresh, monkeypatch, built, tmp_path):
    path = tmp_path / "libtf_tpu_ext_ops.so"
    path.write_text("not a library")
    built(tf.__version__, path=path)
    monkeypatch.setattr(fresh, "_check_no_devices", lambda _: None)
    with pytest.raises(ImportError, match=r"can't be loaded: .*Build it again"):
        fresh.load()


@pytest.mark.parametrize(
    ("before", "what"),
    [
        ("import tensorflow as tf; tf.constant(1)", "has run its first operation"),
        (
            "import tensorflow as tf; tf.config.list_logical_devices()",
            "has run its first operation",
        ),
        (
            "import tensorflow as tf; tf.compat.v1.disable_eager_execution(); "
            "tf.compat.v1.Session().run(tf.constant(1))",
            "has opened a session",
        ),
    ],
)
def test_too_late_import_says_what_to_move(run_python, before, what):
    output = run_python(IMPORT_AND_REPORT.format(before=before)).stdout
    assert output.startswith("RuntimeError tf_tpu_ext was imported too late")
    assert what in output
    assert "Move `import tf_tpu_ext`" in output


@pytest.mark.parametrize(
    "before",
    [
        "pass",
        "import tensorflow as tf",
        "import tensorflow as tf; tf.config.list_physical_devices()",
        "import tensorflow as tf; tf.config.threading.set_inter_op_parallelism_threads(3)",
    ],
)
def test_import_before_the_first_op_loads(run_python, before):
    code = IMPORT_AND_REPORT.format(before=before)
    # Without TensorFlow, it is the package that imports it.
    assert "loaded True" in run_python(code, interpreter=before == "pass").stdout


def test_devices_listed_before_the_import_are_listed_again(run_python):
    output = run_python(
        """
        import tensorflow as tf
        assert not tf.config.list_physical_devices("TPU")
        tf.config.set_visible_devices([], "CPU")
        import tf_tpu_ext
        print(len(tf.config.list_physical_devices("TPU")), tf.config.get_visible_devices("CPU"))
        """,
        env={"TF_TPU_EXT_CORES": "4"},
    ).stdout
    assert output.split() == ["4", "[]"]


def test_missing_tensorflow_names_the_command(fresh, built, monkeypatch):
    built("2.20.0", "2.21.0")

    def fail(name):
        raise ModuleNotFoundError("No module named 'tensorflow'", name="tensorflow")

    monkeypatch.setattr(fresh.importlib, "import_module", fail)
    with pytest.raises(ImportError, match=r"2\.20 or 2\.21, .*'tensorflow-cpu==2\.21\.\*'"):
        fresh.load()


def test_broken_tensorflow_keeps_its_own_error(fresh, monkeypatch):
    def fail(name):
        raise ModuleNotFoundError("No module named 'absl'", name="absl")

    monkeypatch.setattr(fresh.importlib, "import_module", fail)
    with pytest.raises(ModuleNotFoundError, match="absl"):
        fresh.load()
