"""Loading of the native library: what is checked before it, and what each failure says."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import pytest
import tensorflow as tf

from tf_tpu_ext import _native

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


def test_loaded_once_and_stays():
    assert _native.load()
    assert _native.is_loaded()
    assert _native.available()
    assert not _native.stepped_aside()
    assert _native.library() is _native.library()
    assert isinstance(_native.library(), ctypes.CDLL)
    assert _native.built_for() == tf.__version__


def test_reload_finds_the_resident_library(fresh):
    tf.constant(1) + 1
    assert fresh.load()
    assert fresh.is_loaded()


@pytest.mark.parametrize("found", ["2.20.0", "2.22.0-rc1", "3.21.0"])
def test_other_minor_is_refused_before_the_library_is_opened(fresh, monkeypatch, found):
    monkeypatch.setattr(fresh, "_open", lambda _: pytest.fail("opened the library"))
    monkeypatch.setattr(tf, "__version__", found)
    monkeypatch.setattr(fresh, "_tensorflow_distribution", lambda: "tensorflow-cpu")
    monkeypatch.setattr(fresh, "built_for", lambda: "2.21.0")
    with pytest.raises(ImportError) as caught:
        fresh.load()
    message = str(caught.value)
    assert "was built for TensorFlow 2.21 (2.21.0)" in message
    assert f"found TensorFlow {'.'.join(found.split('.')[:2])} ({found})" in message
    assert "pip install 'tensorflow-cpu==2.21.*'" in message
    assert not fresh.is_loaded()


def test_other_patch_is_accepted(fresh, monkeypatch):
    monkeypatch.setattr(fresh, "built_for", lambda: "2.21.7")
    assert fresh.load()


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
    monkeypatch.setattr(_native, "built_for", lambda: "2.21.0")
    with pytest.raises(ImportError, match=rf"pip install '{named}==2\.21\.\*'"):
        _native._check_abi("2.20.1")


def test_missing_library_says_how_to_build(fresh, monkeypatch, tmp_path):
    monkeypatch.setattr(fresh, "LIBRARY_PATH", tmp_path / "tf_tpu_ext" / "libtf_tpu_ext_ops.so")
    with pytest.raises(ImportError, match=r"not built: expected libtf_tpu_ext_ops.so.*pip install"):
        fresh.load()


def test_missing_library_in_a_checkout_names_the_build_tool(fresh, monkeypatch, tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "ninja_build.py").touch()
    monkeypatch.setattr(fresh, "LIBRARY_PATH", tmp_path / "tf_tpu_ext" / "libtf_tpu_ext_ops.so")
    with pytest.raises(ImportError, match=r"run: python .*ninja_build\.py"):
        fresh.load()


def test_missing_record_of_tensorflow_is_a_missing_build(fresh, monkeypatch):
    monkeypatch.setattr(fresh, "built_for", lambda: None)
    with pytest.raises(ImportError, match=r"expected _built_for\.py"):
        fresh.load()


@pytest.mark.skipif(shutil.which("g++") is None, reason="makes a broken library with a compiler")
def test_undefined_symbol_is_explained(fresh, monkeypatch, tmp_path):
    path = tmp_path / "libtf_tpu_ext_ops.so"
    source = 'extern "C" int gone_in_this_tensorflow(); int kept = gone_in_this_tensorflow();'
    subprocess.run(
        ["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", path],
        input=source,
        text=True,
        check=True,
    )
    monkeypatch.setattr(fresh, "LIBRARY_PATH", path)
    monkeypatch.setattr(fresh, "_check_no_devices", lambda _: None)
    with pytest.raises(ImportError) as caught:
        fresh.load()
    message = str(caught.value)
    assert "gone_in_this_tensorflow" in message
    assert f"TensorFlow {tf.__version__} does not have" in message
    assert "run: pip install --force-reinstall" in message


def test_file_that_is_no_library_is_explained(fresh, monkeypatch, tmp_path):
    path = tmp_path / "libtf_tpu_ext_ops.so"
    path.write_text("not a library")
    monkeypatch.setattr(fresh, "LIBRARY_PATH", path)
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


def test_missing_tensorflow_names_the_command(fresh, monkeypatch):
    def fail(name):
        raise ModuleNotFoundError("No module named 'tensorflow'", name="tensorflow")

    monkeypatch.setattr(fresh.importlib, "import_module", fail)
    with pytest.raises(ImportError, match=r"pip install 'tensorflow-cpu==2\.21\.\*'"):
        fresh.load()


def test_broken_tensorflow_keeps_its_own_error(fresh, monkeypatch):
    def fail(name):
        raise ModuleNotFoundError("No module named 'absl'", name="absl")

    monkeypatch.setattr(fresh.importlib, "import_module", fail)
    with pytest.raises(ModuleNotFoundError, match="absl"):
        fresh.load()
