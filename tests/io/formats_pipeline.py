"""Reads a file of each format by native ops; test_formats.py runs this under TensorFlow 2.17."""

from __future__ import annotations

import os

import tensorflow as tf
import tensorflow_io as tfio
from tensorflow_io.python.experimental.avro_record_dataset_ops import AvroRecordDataset

# More than any of the files has.
ALL = 1 << 20


def make_decoded(folder: str, schema: str) -> tf.data.Dataset:
    """One element: what each op makes of the bytes of a file."""
    image = tfio.experimental.image
    decoders = {
        "a.flac": lambda data: tfio.audio.decode_flac(data, dtype=tf.int16),
        "b.flac": lambda data: tfio.audio.decode_flac(data, dtype=tf.int32),
        "a.ogg": tfio.audio.decode_vorbis,
        "a.mp3": tfio.audio.decode_mp3,
        "a.webp": tfio.image.decode_webp,
        "a.tiff": image.decode_tiff,
        "lzw.tiff": image.decode_tiff,
        "a.jp2": image.decode_jp2,
        "a.ppm": image.decode_pnm,
        "a.dcm": lambda data: tfio.image.decode_dicom_image(data, dtype=tf.uint16),
        "patient": lambda data: tfio.image.decode_dicom_data(data, tfio.image.dicom_tags.PatientID),
        "a.record": lambda data: tfio.experimental.serialization.decode_avro(data, schema),
    }
    files = {"patient": "a.dcm"}

    def read(_: tf.Tensor) -> dict[str, tf.Tensor]:
        return {
            name: decode(tf.io.read_file(os.path.join(folder, files.get(name, name))))
            for name, decode in decoders.items()
        }

    return tf.data.Dataset.range(1).map(read)


def make_tables(folder: str, schema: str) -> tf.data.Dataset:
    """One element: all rows of each file."""

    def path(name: str) -> str:
        return os.path.join(folder, name)

    datasets = {
        "parquet": tfio.IODataset.from_parquet(path("a.parquet")),
        "avro": tfio.IODataset.from_avro(path("a.avro"), schema),
        "hdf5": tfio.IODataset.from_hdf5(path("a.h5"), "/group/matrix"),
        "lmdb": tfio.IODataset.from_lmdb(path("a.lmdb")),
        "libsvm": tfio.experimental.IODataset.from_libsvm(path("a.libsvm"), num_features=6),
        "pcap": tfio.IODataset.from_pcap(path("a.pcap")),
        "flac": tfio.IODataset.from_audio(path("a.flac")),
    }
    return tf.data.Dataset.zip({name: rows.batch(ALL) for name, rows in datasets.items()})


def make_avro(path: str, schema: str) -> tf.data.Dataset:
    return tfio.IODataset.from_avro(path, schema, columns=["n"])


def make_avro_records(path: str) -> tf.data.Dataset:
    return AvroRecordDataset(path)


def make_video(path: str) -> tf.data.Dataset:
    data = tf.io.read_file(path)
    return tf.data.Dataset.from_tensors(tfio.experimental.ffmpeg.decode_video(data))
