"""Files of each format, as other libraries read them; and what tensorflow-io can't read.

The table of docs/tensorflow_io.md lists both.
"""

from __future__ import annotations

import contextlib
import ctypes
import pathlib
from typing import Any

import dpkt
import fastavro
import h5py
import lmdb
import numpy as np
import pyarrow.parquet
import pydicom
import pytest
import sample_files
import sklearn.datasets
import soundfile
from PIL import Image

import tf_tpu_ext.io  # before TensorFlow's first operation

import tensorflow as tf  # isort: skip

# The process may end while the dataset is made, or while it is read.
ENDS = (tf_tpu_ext.io.PipelineError, tf.errors.OpError)
PIPELINE = pathlib.Path(__file__).parent / "formats_pipeline.py"


def has_ffmpeg() -> bool:
    for version in (58, 57):
        with contextlib.suppress(OSError):
            ctypes.CDLL(f"libavformat.so.{version}")
            return True
    return False


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, io_environment: Any) -> pathlib.Path:
    del io_environment
    path: pathlib.Path = tmp_path_factory.mktemp("formats")
    sample_files.write_all(path)
    return path


def read(function: str, *args: Any) -> list[Any]:
    return list(tf_tpu_ext.io.dataset(f"{PIPELINE}:{function}", *args))


# One process reads all files.
@pytest.fixture(scope="module")
def decoded(folder: pathlib.Path) -> Any:
    (element,) = read("make_decoded", str(folder), sample_files.AVRO_TEXT)
    return tf.nest.map_structure(lambda tensor: tensor.numpy(), element)


@pytest.fixture(scope="module")
def tables(folder: pathlib.Path) -> Any:
    (element,) = read("make_tables", str(folder), sample_files.AVRO_TEXT)
    return element


@pytest.mark.parametrize(("name", "dtype"), [("a.flac", np.int16), ("b.flac", np.int32)])
def test_flac(decoded, folder, name, dtype):
    expected, _ = soundfile.read(folder / name, dtype=dtype.__name__)
    assert decoded[name].dtype == dtype
    np.testing.assert_array_equal(decoded[name], expected)


@pytest.mark.parametrize("name", ["a.ogg", "a.mp3"])
def test_vorbis_and_mp3(decoded, folder, name):
    # Decoders of lossy formats may round differently.
    expected, _ = soundfile.read(folder / name, dtype="float32")
    assert np.abs(expected).max() > 0.4
    np.testing.assert_allclose(decoded[name], expected, atol=1e-4)


def test_audio_as_a_dataset(tables, folder):
    expected, _ = soundfile.read(folder / "a.flac", dtype="int16")
    np.testing.assert_array_equal(tables["flac"], expected)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("a.webp", "RGBA"),
        ("a.tiff", "RGBA"),
        ("lzw.tiff", "RGBA"),
        ("a.jp2", "RGB"),
        ("a.ppm", "RGB"),
    ],
)
def test_images(decoded, folder, name, mode):
    with Image.open(folder / name) as image:
        np.testing.assert_array_equal(decoded[name], np.asarray(image.convert(mode)))


def test_dicom(decoded, folder):
    scan = pydicom.dcmread(folder / "a.dcm")
    np.testing.assert_array_equal(decoded["a.dcm"][0, :, :, 0], scan.pixel_array)
    assert decoded["patient"] == str(scan.PatientID).encode()


def test_parquet(tables, folder):
    expected = pyarrow.parquet.read_table(folder / "a.parquet")
    assert sorted(tables["parquet"]) == sorted(expected.column_names)
    for name, column in tables["parquet"].items():
        values = expected[name].to_pylist()
        if name == "word":
            values = [word.encode() for word in values]
        assert column.numpy().tolist() == values, name


def test_hdf5(tables, folder):
    with h5py.File(folder / "a.h5") as file:
        np.testing.assert_array_equal(tables["hdf5"], file["group/matrix"][:])


def test_lmdb(tables, folder):
    with (
        lmdb.open(str(folder / "a.lmdb"), subdir=False, readonly=True, lock=False) as database,
        database.begin() as transaction,
    ):
        expected = list(transaction.cursor())
    keys, values = tables["lmdb"]
    assert list(zip(keys.numpy().tolist(), values.numpy().tolist(), strict=True)) == expected


def test_libsvm(tables, folder):
    features, labels = sklearn.datasets.load_svmlight_file(
        str(folder / "a.libsvm"), n_features=sample_files.FEATURES, zero_based=True
    )
    got, got_labels = tables["libsvm"]
    np.testing.assert_allclose(tf.sparse.to_dense(got)[:, 0], features.toarray(), rtol=1e-6)
    assert got_labels[:, 0].numpy().tolist() == labels.tolist()


def test_pcap(tables, folder):
    with open(folder / "a.pcap", "rb") as file:
        expected = list(dpkt.pcap.Reader(file))
    times, packets = tables["pcap"]
    np.testing.assert_allclose(times, [time for time, _ in expected], rtol=1e-9)
    assert packets.numpy().tolist() == [packet for _, packet in expected]


def test_avro_records_and_files_of_one_block(decoded, tables, folder):
    with open(folder / "a.avro", "rb") as file:
        expected = list(fastavro.reader(file))
    columns = dict(zip(sample_files.AVRO_FIELDS, tables["avro"], strict=True))
    for name, column in columns.items():
        values = [row[name] for row in expected]
        got = column.numpy().tolist()
        assert [v.decode() if isinstance(v, bytes) else v for v in got] == values, name
    record = decoded["a.record"]
    assert {**record, "s": record["s"].decode()} == expected[3]


def test_avro_files_of_several_blocks_are_not_read(folder):
    """tensorflow-io aborts, or gives other rows, even without end."""
    path = folder / "blocks.avro"
    sample_files.write_avro(path, block=400)
    try:
        dataset = tf_tpu_ext.io.dataset(f"{PIPELINE}:make_avro", str(path), sample_files.AVRO_TEXT)
        rows = [int(row) for row in dataset.take(sample_files.ROWS + 1)]
        del dataset
    except ENDS:
        rows = []
    assert rows != list(range(sample_files.ROWS))


def test_compressed_avro_files_are_not_read(folder):
    path = folder / "deflate.avro"
    sample_files.write_avro(path, block=1 << 24, codec="deflate")
    with pytest.raises(ENDS, match="ended by SIGSEGV"):
        read("make_avro", str(path), sample_files.AVRO_TEXT)


def test_avro_record_datasets_are_not_read(folder):
    with pytest.raises(ENDS, match="ended by SIGSEGV"):
        read("make_avro_records", str(folder / "a.avro"))


@pytest.mark.skipif(has_ffmpeg(), reason="the library of FFmpeg is installed")
def test_video_needs_a_library_of_ffmpeg(folder):
    with pytest.raises(tf_tpu_ext.io.PipelineError, match="could not find ffmpeg"):
        read("make_video", str(folder / "a.mp3"))
