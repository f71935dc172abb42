"""Elements in shared memory: of all dtypes, shapes and sizes, kept, dropped, cut off by a death."""

from __future__ import annotations

import gc
import os
import pathlib
import signal

import ml_dtypes
import numpy as np
import pytest
from pipeline_processes import servers_of, wait_until

import tf_tpu_ext.io  # before TensorFlow's first operation

import tensorflow as tf  # isort: skip

DTYPES = [
    *(np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
    *(np.float16, np.float32, np.float64, np.complex64, np.complex128, ml_dtypes.bfloat16),
]
ALL_DTYPES = """
    def make(names, shape):
        values = tf.reshape(tf.range(tf.reduce_prod(shape)), shape)
        parts = {name: tf.cast(values % 5, tf.dtypes.as_dtype(name)) for name in names}
        return tf.data.Dataset.from_tensors(parts).repeat(3)
"""
FLOATS = """
    def make(sizes):
        sizes = tf.data.Dataset.from_tensor_slices(sizes).enumerate()
        return sizes.map(lambda i, size: tf.fill([size], tf.cast(i, tf.float32)))
"""


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (7,), (5, 4, 3), (100, 1000)])
def test_dtypes(pipeline, shape):
    names = [tf.as_dtype(dtype).name for dtype in DTYPES]
    dataset = pipeline(ALL_DTYPES, names, np.array(shape, np.int32))
    expected = np.arange(np.prod(shape, dtype=int)).reshape(shape) % 5
    elements = list(dataset)
    assert len(elements) == 3
    for element in elements:
        for name, dtype in zip(names, DTYPES, strict=True):
            got = element[name].numpy()
            assert (got.dtype, got.shape) == (np.dtype(dtype), shape)
            np.testing.assert_array_equal(got, expected.astype(dtype))


def test_strings(pipeline):
    code = """
        def make(words):
            words = tf.data.Dataset.from_tensors(words)
            return words.map(lambda x: (x, x[0, 0], x[:0], tf.strings.length(x)))
    """
    words = [[b"", b"a\0", b"\xff\xfe"], [b"long" * 100_000, "grüße".encode(), b"\0\0"]]
    ((all_words, first, none, lengths),) = pipeline(code, words)
    assert all_words.numpy().tolist() == words
    assert first.numpy() == b""
    assert none.shape == (0, 3)
    assert lengths.numpy().tolist() == [[len(word) for word in row] for row in words]


@pytest.mark.parametrize("readers", [1, 2])
def test_ragged_sparse_and_none(pipeline, readers):
    code = """
        def make():
            def parts(i):
                i = tf.cast(i, tf.int32)
                return {
                    "ragged": tf.RaggedTensor.from_row_lengths(tf.fill([4], i), [1, 0, 3]),
                    "deep": tf.RaggedTensor.from_nested_row_lengths(
                        tf.fill([3, 2], i), [[1, 1], [3, 0]]
                    ),
                    "sparse": tf.sparse.from_dense(tf.linalg.diag(tf.fill([3], i + 1))),
                    "none": None,
                    "words": tf.ragged.constant([["a"], ["b", "c"]]),
                    "dense": i,
                }
            return tf.data.Dataset.range(40).map(parts)
    """
    dataset = pipeline(code, readers=readers)
    spec = dataset.element_spec
    assert spec["ragged"] == tf.RaggedTensorSpec([3, None], tf.int32)
    assert spec["deep"] == tf.RaggedTensorSpec([2, None, None, 2], tf.int32, ragged_rank=2)
    assert isinstance(spec["sparse"], tf.SparseTensorSpec)
    elements = sorted(dataset, key=lambda element: int(element["dense"]))
    assert len(elements) == 40
    for i, element in enumerate(elements):
        assert element["ragged"].to_list() == [[i], [], [i, i, i]]
        assert element["deep"].to_list() == [[[[i, i], [i, i], [i, i]]], [[]]]
        np.testing.assert_array_equal(tf.sparse.to_dense(element["sparse"]), np.eye(3) * (i + 1))
        assert element["none"] is None
        assert element["words"].to_list() == [[b"a"], [b"b", b"c"]]
        assert int(element["dense"]) == i


def test_sizes_that_change(pipeline):
    sizes = [10, 8 << 20, 0, 1 << 18, 16 << 20, 3, 12 << 20] * 3
    for i, element in enumerate(pipeline(FLOATS, sizes)):
        assert element.shape == [sizes[i]]
        assert bool(tf.reduce_all(element == i))


def test_elements_that_are_kept_don_t_change(pipeline):
    dataset = pipeline(FLOATS, [50_000] * 40)
    for i, element in enumerate(list(dataset)):
        assert bool(tf.reduce_all(element == i))
    # Ops that write into their argument's memory.
    for i, element in enumerate(list(dataset.map(lambda x: x + 1).batch(2))):
        np.testing.assert_array_equal(element[:, -1], [2 * i + 1, 2 * i + 2])


def test_many_tensors(pipeline):
    code = """
        def make(count):
            numbers = tf.data.Dataset.range(3)
            return numbers.map(lambda i: {f"{k:04}": i + k for k in range(count)})
    """
    for i, element in enumerate(pipeline(code, 700)):
        assert [int(element[f"{k:04}"]) for k in range(700)] == list(range(i, i + 700))


def test_what_is_no_tensor_is_an_error(pipeline):
    with pytest.raises(tf_tpu_ext.io.PipelineError, match="can't leave its process"):
        pipeline("def make():\n    return tf.data.Dataset.range(9).window(3)\n")


def test_a_process_that_dies_leaves_what_was_read(pipeline):
    elements = iter(pipeline(FLOATS, [1 << 18] * 1000))
    kept = [next(elements) for _ in range(6)]
    shared = set(os.listdir("/dev/shm"))
    (server,) = servers_of(os.getpid())
    os.kill(server, signal.SIGKILL)
    with pytest.raises(tf.errors.OpError, match="SIGKILL"):
        list(elements)
    for i, element in enumerate(kept):
        assert bool(tf.reduce_all(element == i))
    assert shared_files_of(os.getpid())
    del elements, kept, element
    wait_until(lambda: (gc.collect(), not shared_files_of(os.getpid()))[1])
    assert set(os.listdir("/dev/shm")) <= shared


def test_iterations_that_are_dropped_end_there(pipeline):
    dataset = pipeline(FLOATS, [1 << 18] * 1000)
    (server,) = servers_of(os.getpid())
    for i in range(12):
        elements = iter(dataset)
        assert float(next(elements)[0]) == 0
        if i == 0:
            files = shared_files_of(server)
            threads = len(os.listdir(f"/proc/{server}/task"))
        del elements
    assert files
    wait_until(lambda: (gc.collect(), not shared_files_of(server))[1])
    wait_until(lambda: len(os.listdir(f"/proc/{server}/task")) < threads + 12)
    assert float(next(iter(dataset))[0]) == 0


def test_an_iteration_goes_on_without_its_dataset(pipeline):
    code = "def make():\n    return tf.data.Dataset.range(30)\n"
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    elements = iter(strategy.experimental_distribute_dataset(pipeline(code).batch(3)))
    gc.collect()
    got = [strategy.experimental_local_results(next(elements))[0].numpy()[0] for _ in range(10)]
    assert got == list(range(0, 30, 3))


def shared_files_of(process: int) -> list[str]:
    """Returns the memory for elements that a process has open."""
    found = []
    for file in pathlib.Path(f"/proc/{process}/fd").iterdir():
        try:
            target = os.readlink(file)
        except OSError:
            continue  # closed meanwhile
        if "tf_tpu_ext_element" in target:
            found.append(target)
    return found
