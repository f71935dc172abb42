"""When there are virtual cores, when a TPU is left to TensorFlow, and when neither works."""

from __future__ import annotations

import logging
import pathlib

import pytest
import tensorflow as tf

from tf_tpu_ext import _native, _real_tpu
from tf_tpu_ext.cli import doctor

V5E = ("0x1ae0", "0x0063")
DEVICE = "/physical_device:TPU:0"

# A process whose machine has the TPU of a made-up PCI tree.
WITH_TPU = """
import importlib.util, logging, pathlib, sys

logging.basicConfig(level="INFO", stream=sys.stdout, format="%(message)s")
folder = importlib.util.find_spec("tf_tpu_ext").submodule_search_locations[0]
name = "tf_tpu_ext._real_tpu"
spec = importlib.util.spec_from_file_location(name, folder + "/_real_tpu.py")
module = sys.modules[name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module._PCI_DEVICES = pathlib.Path(sys.argv[1])
import tf_tpu_ext
import tensorflow as tf
print(tf_tpu_ext.is_virtual(), tf_tpu_ext.patches.applied() != ())
print(tf.config.list_physical_devices("TPU"))
"""


@pytest.fixture
def pci(monkeypatch, tmp_path):
    """An empty machine; returns a function that plugs a PCI card into it."""
    monkeypatch.setattr(_real_tpu, "_PCI_DEVICES", tmp_path / "pci")
    monkeypatch.setattr(_real_tpu, "_DEVICE_FILES", tmp_path / "dev")
    monkeypatch.delenv("TPU_ACCELERATOR_TYPE", raising=False)
    (tmp_path / "dev").mkdir()

    def plug(vendor: str, device: str) -> pathlib.Path:
        card = tmp_path / "pci" / "0000:00:04.0"
        card.mkdir(parents=True)
        (card / "vendor").write_text(vendor + "\n")
        (card / "device").write_text(device + "\n")
        return tmp_path / "pci"

    return plug


@pytest.fixture
def site(monkeypatch, tmp_path):
    """A folder from which TensorFlow is imported; returns a function that installs one into it."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setattr(_real_tpu, "_folder_with_tensorflow", lambda: folder)
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(_real_tpu.ctypes.util, "find_library", lambda name: None)

    def install(name: str, version: str = "2.20.0", libtpu: bool = False) -> None:
        metadata = folder / f"{name.replace('-', '_')}-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        if libtpu:
            (folder / "libtpu").mkdir()
            (folder / "libtpu" / "libtpu.so").touch()

    return install


@pytest.fixture
def fresh(monkeypatch):
    """The module as in a process that has loaded nothing yet."""
    monkeypatch.setattr(_native, "_state", _native._State())
    monkeypatch.delenv(_real_tpu.VARIABLE, raising=False)
    return _native


def test_tensorflow_that_cannot_drive_the_tpu_gets_virtual_cores(run_python, pci):
    """As on Kaggle: a TPU in the machine, and tensorflow-cpu."""
    tree = pci(*V5E)
    lines = run_python(WITH_TPU, str(tree), env={"TF_TPU_EXT_CORES": "2"}).stdout.splitlines()
    assert lines[0].startswith(
        "tf_tpu_ext adds virtual cores: found a TPU (PCI device 0000:00:04.0), which tensorflow"
    )
    assert lines[0].endswith(f"{tf.__version__} can't drive")
    assert lines[-2] == "True True"
    assert lines[-1].count("device_type='TPU'") == 2


def test_tensorflow_can_be_left_alone(run_python, pci):
    done = run_python(WITH_TPU, str(pci(*V5E)), env={"TF_TPU_EXT_TPU": "real"})
    assert "no virtual cores in this process: TF_TPU_EXT_TPU=real is set" in done.stdout
    assert done.stdout.splitlines()[-2:] == ["False False", "[]"]


def test_unknown_wish_is_refused(run_python, pci):
    done = run_python(WITH_TPU, str(pci(*V5E)), env={"TF_TPU_EXT_TPU": "both"}, check=False)
    assert done.returncode == 1
    assert "ValueError: The environment variable TF_TPU_EXT_TPU must be" in done.stderr
    assert "Received: TF_TPU_EXT_TPU='both'" in done.stderr


def test_steps_aside_once_for_a_tensorflow_that_drives_the_tpu(
    fresh, pci, site, monkeypatch, caplog
):
    pci(*V5E)
    site("tensorflow-tpu", libtpu=True)
    monkeypatch.setattr(fresh, "_import_tensorflow", lambda: pytest.fail("imported TensorFlow"))
    with caplog.at_level(logging.WARNING, "tf_tpu_ext"):
        assert not fresh.load()
        assert not fresh.available()
        with pytest.raises(RuntimeError, match="found a TPU"):
            fresh.library()
    assert fresh.stepped_aside()
    assert not fresh.is_loaded()
    assert len(caplog.records) == 1
    assert "found a TPU (PCI device 0000:00:04.0) and tensorflow-tpu 2.20.0" in caplog.text


def test_tensorflow_tpu_without_a_tpu_is_refused_before_it_is_imported(
    fresh, pci, site, monkeypatch
):
    site("tensorflow-tpu", libtpu=True)
    monkeypatch.setattr(fresh, "_import_tensorflow", lambda: pytest.fail("imported TensorFlow"))
    with pytest.raises(ImportError) as caught:
        fresh.load()
    message = str(caught.value)
    assert "found no TPU and tensorflow-tpu 2.20.0, which has TPU kernels of its own" in message
    assert "pip uninstall -y tensorflow-tpu && pip install" in message
    assert "'tensorflow-cpu==2.20.*'" in message
    assert not fresh.stepped_aside()


def test_build_of_tensorflow_with_tpu_kernels_is_refused_before_the_library_is_opened(
    fresh, pci, site, monkeypatch
):
    monkeypatch.setattr(fresh, "_is_resident", lambda _: False)
    monkeypatch.setattr(fresh, "_find_tensorflow_tpu", lambda: None)
    monkeypatch.setattr(fresh, "_open", lambda *_: pytest.fail("opened the library"))
    # This very process has such kernels, which its library registered.
    with pytest.raises(ImportError, match=r"found no TPU and this build of TensorFlow"):
        fresh.load()


def test_tensorflow_tpu_beside_a_tpu_needs_libtpu(pci, site):
    pci(*V5E)
    site("tensorflow-tpu")
    choice = _real_tpu.choose()
    assert choice.tpu == "none"
    assert "has TPU kernels of its own but no libtpu" in choice.because
    assert choice.advice.startswith("For the TPU, install libtpu.")


def test_virtual_cores_beside_kernels_of_tensorflow_are_refused(pci, site):
    pci(*V5E)
    site("tensorflow-tpu", libtpu=True)
    assert _real_tpu.choose().tpu == "real"
    assert _real_tpu.choose(asked="virtual").tpu == "none"
    assert _real_tpu.choose(asked="real").tpu == "real"


def test_two_distributions_in_one_folder_leave_it_to_the_kernels(pci, site):
    """The one that was installed last has overwritten the other's files."""
    pci(*V5E)
    site("tensorflow-cpu")
    site("tensorflow-tpu", libtpu=True)
    assert _real_tpu.choose().tpu == "virtual"
    assert _real_tpu.choose(kernels=False).tpu == "virtual"
    assert _real_tpu.choose(kernels=True).tpu == "real"


def test_tpu_that_tensorflow_lists_is_real(fresh, pci, site, monkeypatch):
    site("tensorflow")
    monkeypatch.setattr(_native, "_is_resident", lambda _: False)
    monkeypatch.setattr(_native, "_tensorflow_has_kernels", lambda: False)
    monkeypatch.setattr(_native, "_find_tensorflow_tpu", lambda: DEVICE)
    assert not _native.load()
    assert _native.stepped_aside()


@pytest.mark.parametrize(
    ("vendor", "device"),
    [("0x1ae0", "0x0042"), ("0x10de", "0x0063"), ("0x1ae0", "unreadable")],
)
def test_other_cards_are_no_tpu(pci, vendor, device):
    pci(vendor, device)
    assert _real_tpu.find_hardware() is None


@pytest.mark.parametrize("file", ["accel0", "vfio/0"])
def test_device_files_count_only_with_the_runtime_variable(pci, monkeypatch, file):
    path: pathlib.Path = _real_tpu._DEVICE_FILES / file
    path.parent.mkdir(exist_ok=True)
    path.touch()
    assert _real_tpu.find_hardware() is None
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v5litepod-8")
    assert _real_tpu.find_hardware() == f"{path} with TPU_ACCELERATOR_TYPE=v5litepod-8"


def test_runtime_variable_alone_is_no_tpu(pci, monkeypatch):
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v5litepod-8")
    (_real_tpu._DEVICE_FILES / "vfio").mkdir()
    (_real_tpu._DEVICE_FILES / "vfio" / "vfio").touch()
    assert _real_tpu.find_hardware() is None


def test_libtpu_is_looked_for_where_tensorflow_does(site, tmp_path, monkeypatch):
    site("tensorflow-tpu")
    assert _real_tpu.find_libtpu() is None
    monkeypatch.setenv("TPU_LIBRARY_PATH", str(tmp_path / "mine.so"))
    assert _real_tpu.find_libtpu() is None
    (tmp_path / "mine.so").touch()
    assert _real_tpu.find_libtpu() == str(tmp_path / "mine.so")


def test_installed_tensorflow_is_found():
    (found,) = {item.split()[1] for item in _real_tpu.tensorflow_distributions()}
    assert found == tf.__version__


@pytest.mark.parametrize(
    ("environment", "status", "part"),
    [
        ({}, "ok", "found no TPU: programs get virtual cores"),
        ({"TF_TPU_EXT_TPU": "real"}, "note", "programs get TensorFlow's own TPU support"),
        ({"TF_TPU_EXT_TPU": "x"}, "failed", "Received: TF_TPU_EXT_TPU='x'"),
    ],
)
def test_doctor_tells_what_was_found_and_chosen(environment, status, part):
    check = doctor.tpu(environment)
    assert (check.name, check.status) == ("TPU", status)
    assert part in check.found
