"""Elements of a pipeline: the same here as there, in order, again, and from several readers."""

from __future__ import annotations

import wave

import numpy as np
import pytest

import tf_tpu_ext  # before TensorFlow's first operation

import tensorflow as tf  # isort: skip

WAV = """
    import tensorflow_io as tfio

    def make(paths):
        read = lambda path: tfio.audio.decode_wav(tf.io.read_file(path), dtype=tf.int16)[:, 0]
        return tf.data.Dataset.from_tensor_slices(paths).map(read)
"""
NUMBERS = """
    def make(count, start=0):
        return tf.data.Dataset.range(start, start + count)
"""


def write_wav(path, samples):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(samples.astype("<i2").tobytes())
    return str(path)


def test_wav_files_arrive_as_the_wave_module_reads_them(pipeline, tmp_path):
    generator = np.random.default_rng(1)
    waves = [generator.integers(-32768, 32768, size) for size in (10, 1, 3000)]
    paths = [write_wav(tmp_path / f"{number}.wav", w) for number, w in enumerate(waves)]
    dataset = pipeline(WAV, paths)
    assert dataset.element_spec == tf.TensorSpec([None], tf.int16)
    for _ in range(2):
        read = list(dataset)
        assert len(read) == len(waves)
        for got, expected in zip(read, waves, strict=True):
            np.testing.assert_array_equal(got, expected)
    assert len(list(dataset.repeat(3))) == 9


def test_structures_ragged_and_sparse(pipeline):
    code = """
        import collections

        Pair = collections.namedtuple("Pair", "left right")

        def make():
            ragged = tf.ragged.constant([[1, 2], [], [3]])
            sparse = tf.sparse.from_dense([[0, 5], [6, 0], [0, 0]])
            words = tf.constant(["a", "", "long" * 100])
            parts = {"r": ragged, "s": sparse, "p": Pair(words, tf.constant([1.5, 2.5, 3.5]))}
            return tf.data.Dataset.from_tensor_slices(parts).batch(2)
    """
    dataset = pipeline(code)
    spec = dataset.element_spec
    assert isinstance(spec["r"], tf.RaggedTensorSpec)
    assert isinstance(spec["s"], tf.SparseTensorSpec)
    first, last = dataset
    assert first["r"].to_list() == [[1, 2], []]
    assert last["r"].to_list() == [[3]]
    assert tf.sparse.to_dense(first["s"]).numpy().tolist() == [[0, 5], [6, 0]]
    assert tf.sparse.to_dense(last["s"]).numpy().tolist() == [[0, 0]]
    assert first["p"].left.numpy().tolist() == [b"a", b""]
    assert last["p"].right.numpy().tolist() == [3.5]


def test_one_reader_keeps_the_order(pipeline):
    dataset = pipeline(NUMBERS, 2000, start=5)
    assert [int(x) for x in dataset] == list(range(5, 2005))
    # Two iterations at a time don't disturb each other.
    assert [(int(x), int(y)) for x, y in tf.data.Dataset.zip(dataset, dataset)] == [
        (x, x) for x in range(5, 2005)
    ]


@pytest.mark.parametrize("processes", [1, 2])
def test_several_readers_share_the_elements(pipeline, processes):
    dataset = pipeline(NUMBERS, 300, readers=2, processes=processes)
    for _ in range(2):
        assert sorted(int(x) for x in dataset) == list(range(300))


def test_several_readers_read_all_or_parts_by_the_modes_of_the_service(pipeline):
    for mode, copies in {
        "parallel_epochs": 3,
        tf.data.experimental.service.ShardingPolicy.OFF: 3,
        "distributed_epoch": 1,
        tf.data.experimental.service.ShardingPolicy.DATA: 1,
    }.items():
        dataset = pipeline(NUMBERS, 30, readers=3, processing_mode=mode)
        assert sorted(int(x) for x in dataset) == sorted(list(range(30)) * copies), mode


# Which process read an element: with one reader each, that is which reader.
SHARDS = """
    import os

    def with_process(element):
        return element, tf.numpy_function(lambda: os.getpid(), [], tf.int64)

    def make(source):
        if isinstance(source, list):
            return tf.data.TFRecordDataset(source).map(with_process)
        hint = tf.data.experimental.SHARD_HINT
        return tf.data.Dataset.range(source).shard(hint, hint).map(with_process)
"""


def test_files_are_shared_by_the_mode_of_that_name(pipeline, tmp_path):
    paths = [str(tmp_path / f"{number}.tfrecord") for number in range(4)]
    for path in paths:
        with tf.io.TFRecordWriter(path) as file:
            for record in range(5):
                file.write(f"{path} {record}".encode())
    mode = tf.data.experimental.service.ShardingPolicy.FILE
    shards = read_shards(pipeline(SHARDS, paths, readers=2, processes=2, processing_mode=mode))
    everything = [[f"{path} {record}".encode() for record in range(5)] for path in paths]
    assert sorted(shards) == [everything[0] + everything[2], everything[1] + everything[3]]


def test_a_hint_says_where_elements_are_shared(pipeline):
    mode = tf.data.experimental.service.ShardingPolicy.HINT
    shards = read_shards(pipeline(SHARDS, 11, readers=2, processes=2, processing_mode=mode))
    assert sorted(shards) == [list(range(0, 11, 2)), list(range(1, 11, 2))]


def read_shards(dataset):
    shards = {}
    for element, process in dataset:
        shards.setdefault(int(process), []).append(element.numpy())
    return list(shards.values())


def test_a_pipeline_without_files_cannot_be_shared_by_files(pipeline):
    mode = tf.data.experimental.service.ShardingPolicy.FILE
    with pytest.raises(tf.errors.OpError, match="file"):
        list(pipeline(NUMBERS, 3, readers=2, processing_mode=mode))


def test_functions_in_python_run_in_every_process(pipeline):
    code = """
        def make():
            dataset = tf.data.Dataset.range(40)
            return dataset.map(lambda x: tf.numpy_function(lambda y: y * y, [x], tf.int64))
    """
    dataset = pipeline(code, readers=2, processes=2)
    assert sorted(int(x) for x in dataset) == [x * x for x in range(40)]


def test_a_module_is_found_by_its_name(io_environment, tmp_path, monkeypatch):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "numbers.py").write_text(
        "import tensorflow as tf\nmake = tf.data.Dataset.range"
    )
    monkeypatch.chdir(tmp_path)
    dataset = tf_tpu_ext.io.dataset("package.numbers:make", 3)
    assert [int(x) for x in dataset] == [0, 1, 2]


def test_two_pipelines_at_a_time(pipeline):
    first, second = pipeline(NUMBERS, 3), pipeline(NUMBERS, 3, start=10)
    assert [(int(x), int(y)) for x, y in zip(first, second, strict=True)] == [
        (0, 10),
        (1, 11),
        (2, 12),
    ]


@pytest.mark.parametrize(
    ("function", "options", "part"),
    [
        ("pipeline.py", {}, "expected FILE.py:NAME"),
        ("pipeline.py:make", {"readers": 0}, "expected at least one process"),
        ("pipeline.py:make", {"processes": 2}, "a reader for each"),
        ("pipeline.py:make", {"processing_mode": "all"}, "expected one of"),
    ],
)
def test_wrong_arguments(function, options, part):
    with pytest.raises(ValueError, match=part):
        tf_tpu_ext.io.dataset(function, **options)
