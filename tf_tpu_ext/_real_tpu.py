"""Decides whether this process gets virtual cores or leaves a real TPU to TensorFlow.

A TPU in the machine is not enough to step aside: most builds of TensorFlow can't drive one. Those
that can (the distribution tensorflow-tpu) have their own TPU kernels, and ours can't be registered
alongside them, with or without a TPU.

This module needs only Python's standard library: `tf-tpu doctor` loads it where the package fails.
"""

from __future__ import annotations

import ctypes.util
import dataclasses
import importlib.metadata
import importlib.util
import os
import pathlib
from typing import Literal

VARIABLE = "TF_TPU_EXT_TPU"

_PCI_DEVICES = pathlib.Path("/sys/bus/pci/devices")
_DEVICE_FILES = pathlib.Path("/dev")
_GOOGLE_PCI_VENDOR = 0x1AE0
# Chip generations v2 and v3 (one id), v4, v5p, v5e, v6e, 7x, and one without a public name. The
# vendor id alone is not enough, because Google's network and storage cards have it too.
_TPU_PCI_DEVICES = frozenset({0x0027, 0x0056, 0x005E, 0x0062, 0x0063, 0x006F, 0x0076})

_PLAIN = ("tensorflow", "tensorflow-cpu", "tf-nightly", "tf-nightly-cpu", "intel-tensorflow")
_FOR_TPU = ("tensorflow-tpu", "tf-nightly-tpu")


@dataclasses.dataclass(frozen=True)
class Choice:
    """What this process gets.

    Attributes:
        tpu: "virtual" for virtual cores, "real" if the package steps aside, "none" if TensorFlow
            has its own TPU kernels but no TPU to run them on.
        because: The finding that led to the choice.
        advice: How to get virtual cores; empty if the process has them.
    """

    tpu: Literal["virtual", "real", "none"]
    because: str
    advice: str = ""


def choose(
    kernels: bool | None = None, device: str | None = None, asked: str | None = None
) -> Choice:
    """Decides by what is installed, and by what TensorFlow has loaded if that is already known.

    Args:
        kernels: Whether TensorFlow has its own TPU kernels. None before it is imported, when the
            distribution's name has to tell.
        device: The name of a real TPU in TensorFlow's list of devices.
        asked: What the user asks for: "virtual", "real", or None for whichever fits.

    Raises:
        ValueError: `asked` has any other value.
    """
    if asked not in (None, "", "virtual", "real"):
        raise ValueError(
            f"The environment variable {VARIABLE} must be 'virtual', for virtual cores, 'real', to "
            f"leave the TPU to TensorFlow, or unset. Received: {VARIABLE}={asked!r}"
        )
    if asked == "real":
        return Choice("real", f"{VARIABLE}=real is set", f"Unset {VARIABLE}.")
    hardware = device or find_hardware()
    found = f"a TPU ({hardware})" if hardware else "no TPU"
    installed = tensorflow_distributions()
    name = " and ".join(installed) or "this build of TensorFlow"
    if kernels is None:
        kernels = bool(installed) and all(item.startswith(_FOR_TPU) for item in installed)
    if not kernels and device is None:
        undriven = f", which {name} can't drive" if hardware else ""
        return Choice("virtual", f"found {found}{undriven}")
    beside = f"found {found} and {name}, which has TPU kernels of its own"
    if asked == "virtual" or hardware is None:
        return Choice("none", beside, _replace(installed))
    if device is None and find_libtpu() is None:
        return Choice(
            "none", f"{beside} but no libtpu", f"For the TPU, install libtpu. {_replace(installed)}"
        )
    return Choice("real", f"{beside} and drives it", _replace(installed))


def _replace(installed: list[str]) -> str:
    """Returns how to replace the installed TensorFlow with one that supports virtual cores."""
    names = [item.split()[0] for item in installed]
    version = ".".join(installed[0].split()[1].split(".")[:2]) if installed else None
    remove = f"pip uninstall -y {' '.join(names)} && " if names else ""
    wanted = f"'tensorflow-cpu=={version}.*'" if version else "tensorflow-cpu"
    return f"For virtual cores, run: {remove}pip install --force-reinstall --no-deps {wanted}"


def tensorflow_distributions() -> list[str]:
    """Returns the distributions that share TensorFlow's folder, such as "tensorflow-cpu 2.21.0"."""
    folder = _folder_with_tensorflow()
    if folder is None:
        return []
    return [
        f"{name} {found.version}"
        for name in (*_PLAIN, *_FOR_TPU)
        for found in importlib.metadata.distributions(name=name, path=[str(folder)])
    ]


def _folder_with_tensorflow() -> pathlib.Path | None:
    """Returns the folder from which Python imports TensorFlow, without importing it."""
    try:
        spec = importlib.util.find_spec("tensorflow")
    except ValueError:
        # A module that a program has created has no spec.
        return None
    return None if spec is None or spec.origin is None else pathlib.Path(spec.origin).parents[1]


def find_libtpu() -> str | None:
    """Returns the path where TensorFlow finds libtpu, or None."""
    named = os.environ.get("TPU_LIBRARY_PATH")
    if named:
        return named if pathlib.Path(named).exists() else None
    folder = _folder_with_tensorflow()
    if folder is not None and (folder / "libtpu" / "libtpu.so").exists():
        return str(folder / "libtpu" / "libtpu.so")
    return ctypes.util.find_library("tpu")


def find_hardware() -> str | None:
    """Returns a description of this machine's TPU, or None.

    An installed libtpu proves nothing, because it can be installed anywhere. The chips' PCI ids do.
    In a container that hides them, device files do, but only if the TPU runtime's environment
    variables are also set, because other accelerators have files with the same names.
    """
    try:
        cards = sorted(_PCI_DEVICES.iterdir())
    except OSError:
        cards = []
    for card in cards:
        if _read_hexadecimal(card / "vendor") != _GOOGLE_PCI_VENDOR:
            continue
        if _read_hexadecimal(card / "device") in _TPU_PCI_DEVICES:
            return f"PCI device {card.name}"
    kind = os.environ.get("TPU_ACCELERATOR_TYPE")
    if kind:
        for pattern in ("accel[0-9]*", "vfio/[0-9]*"):
            for file in sorted(_DEVICE_FILES.glob(pattern)):
                return f"{file} with TPU_ACCELERATOR_TYPE={kind}"
    return None


def _read_hexadecimal(path: pathlib.Path) -> int | None:
    try:
        return int(path.read_text(), 16)
    except (OSError, ValueError):
        return None
