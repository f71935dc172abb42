"""What collectives give, computed with NumPy, and arrays of any type to try them on."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

Groups = list[list[int]]
Pairs = list[tuple[int, int]]


def random_array(shape: Sequence[int], dtype: str, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    kind = tf.as_dtype(dtype)
    numpy_type = kind.as_numpy_dtype
    if kind.is_bool:
        return generator.integers(0, 2, size=shape).astype(bool)
    if kind.is_integer:
        limits = np.iinfo(numpy_type)
        return generator.integers(limits.min, limits.max, size=shape, dtype=numpy_type)
    real = generator.normal(size=shape) * 100
    if kind.is_complex:
        return (real + 1j * generator.normal(size=shape)).astype(numpy_type)
    return real.astype(numpy_type)


def replica_arrays(shape: Sequence[int], dtype: str, replicas: int) -> list[np.ndarray]:
    return [random_array(shape, dtype, seed) for seed in range(replicas)]


def numpy_sum(arrays: Sequence[np.ndarray], groups: Groups) -> list[np.ndarray]:
    """Sums in the arrays' own type; 16-bit floats in float32, rounded once."""
    dtype = arrays[0].dtype
    wide = np.float32 if dtype.itemsize == 2 else dtype
    sums = list(arrays)
    for group in groups:
        total = functools.reduce(np.add, [arrays[i].astype(wide) for i in group])
        for replica in group:
            sums[replica] = total.astype(dtype)
    return sums


def numpy_all_to_all(
    arrays: Sequence[np.ndarray], groups: Groups, concat: int, split: int
) -> list[np.ndarray]:
    results = list(arrays)
    for group in groups:
        for place, replica in enumerate(group):
            pieces = [np.split(arrays[source], len(group), split)[place] for source in group]
            results[replica] = np.concatenate(pieces, concat)
    return results


def numpy_permute(arrays: Sequence[np.ndarray], pairs: Pairs) -> list[np.ndarray]:
    results = [np.zeros_like(array) for array in arrays]
    for source, target in pairs:
        results[target] = arrays[source]
    return results


def as_pairs(pairs: Pairs) -> np.ndarray:
    return np.array(pairs, np.int32).reshape(-1, 2)


def assert_replicas_equal(actual: Sequence[Any], expected: Sequence[np.ndarray]) -> None:
    assert len(actual) == len(expected)
    for replica, (got, want) in enumerate(zip(actual, expected, strict=True)):
        np.testing.assert_array_equal(got, want, err_msg=f"replica {replica}")
        assert got.dtype == want.dtype
