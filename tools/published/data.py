"""Small made-up data, in the formats in which the programs read it."""

from __future__ import annotations

import pathlib
import struct

import numpy as np

_CLASSES = 10


def digits(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns images of 28 x 28 bytes with a bright bar whose row is the label, and the labels."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, _CLASSES, count).astype(np.uint8)
    images = random.integers(0, 60, (count, 28, 28)).astype(np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[2 * label + 4 : 2 * label + 7, 4:24] = 230
    return images, labels


def mnist(folder: pathlib.Path) -> None:
    """Writes MNIST's four files, without compression."""
    for name, count, seed in (("train", 640, 1), ("t10k", 160, 2)):
        images, labels = digits(count, seed)
        head = struct.pack(">IIII", 2051, count, 28, 28)
        (folder / f"{name}-images-idx3-ubyte").write_bytes(head + images.tobytes())
        head = struct.pack(">II", 2049, count)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(head + labels.tobytes())
