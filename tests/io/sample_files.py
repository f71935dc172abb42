"""Writes a file of each format, by libraries that have nothing to do with TensorFlow."""

from __future__ import annotations

import io
import json
import pathlib
from typing import Any

import dpkt
import fastavro
import h5py
import lmdb
import numpy as np
import pyarrow
import pyarrow.parquet
import pydicom
import sklearn.datasets
import soundfile
from PIL import Image

RATE, ROWS, FEATURES = 8000, 5000, 6
AVRO_FIELDS = {"x": "double", "n": "long", "s": "string"}
AVRO_SCHEMA = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": name, "type": kind} for name, kind in AVRO_FIELDS.items()],
}
AVRO_TEXT = json.dumps(AVRO_SCHEMA)


def write_all(folder: pathlib.Path) -> None:
    """Writes a file for each name that formats_pipeline.py reads."""
    generator = np.random.default_rng(1)
    _write_audio(folder, generator)
    _write_images(folder, generator)
    _write_dicom(folder / "a.dcm", generator)
    _write_tables(folder, generator)
    write_avro(folder / "a.avro", block=1 << 24)
    record = io.BytesIO()
    fastavro.schemaless_writer(record, fastavro.parse_schema(AVRO_SCHEMA), avro_rows()[3])
    (folder / "a.record").write_bytes(record.getvalue())


def _write_audio(folder: pathlib.Path, generator: np.random.Generator) -> None:
    noise = generator.integers(-32768, 32768, (3000, 2)).astype(np.int16)
    soundfile.write(folder / "a.flac", noise, RATE, subtype="PCM_16")
    soundfile.write(folder / "b.flac", noise.astype(np.int32) << 16, RATE, subtype="PCM_24")
    tones = 0.5 * np.sin(2 * np.pi * np.arange(RATE)[:, None] / RATE * [440, 220])
    soundfile.write(folder / "a.ogg", tones, RATE, format="OGG", subtype="VORBIS")
    soundfile.write(folder / "a.mp3", tones, RATE, format="MP3")


def _write_images(folder: pathlib.Path, generator: np.random.Generator) -> None:
    image = Image.fromarray(generator.integers(0, 256, (20, 30, 3)).astype(np.uint8))
    image.save(folder / "a.webp", lossless=True)
    image.save(folder / "a.tiff")
    image.save(folder / "lzw.tiff", compression="tiff_lzw")
    image.save(folder / "a.jp2")
    image.save(folder / "a.ppm")


def _write_dicom(path: pathlib.Path, generator: np.random.Generator) -> None:
    scan = pydicom.Dataset()
    scan.file_meta = pydicom.dataset.FileMetaDataset()
    scan.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    scan.SOPClassUID = pydicom.uid.SecondaryCaptureImageStorage
    scan.SOPInstanceUID = pydicom.uid.generate_uid()
    scan.PatientID = "patient 7"
    scan.Rows, scan.Columns, scan.SamplesPerPixel = 20, 30, 1
    scan.PhotometricInterpretation = "MONOCHROME2"
    scan.BitsAllocated = scan.BitsStored = 16
    scan.HighBit, scan.PixelRepresentation = 15, 0
    scan.PixelData = generator.integers(0, 65536, (20, 30)).astype("<u2").tobytes()
    scan.save_as(path, enforce_file_format=True)


def _write_tables(folder: pathlib.Path, generator: np.random.Generator) -> None:
    columns: dict[str, Any] = {
        "f64": generator.random(ROWS),
        "f32": generator.random(ROWS).astype(np.float32),
        "i64": np.arange(ROWS),
        "i32": np.arange(ROWS, dtype=np.int32),
        "flag": np.arange(ROWS) % 3 == 0,
        "word": [f"word {row}" for row in range(ROWS)],
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "a.parquet")
    with h5py.File(folder / "a.h5", "w") as file:
        file["group/matrix"] = generator.random((ROWS, 4))
    with (
        lmdb.open(str(folder / "a.lmdb"), subdir=False, map_size=1 << 24, lock=False) as database,
        database.begin(write=True) as transaction,
    ):
        for row in range(ROWS):
            transaction.put(b"%06d" % row, b"value %d" % (row * row))
    features = generator.random((20, FEATURES)) * (generator.random((20, FEATURES)) < 0.5)
    sklearn.datasets.dump_svmlight_file(
        features, generator.integers(0, 2, 20), str(folder / "a.libsvm"), zero_based=True
    )
    with open(folder / "a.pcap", "wb") as file:
        packets = dpkt.pcap.Writer(file)
        for number in range(20):
            packets.writepkt(generator.bytes(14 + number), ts=1000 + number / 8)


def avro_rows() -> list[dict[str, Any]]:
    return [{"x": row / 2, "n": row, "s": f"row {row}"} for row in range(ROWS)]


def write_avro(path: pathlib.Path, block: int, codec: str = "null") -> None:
    with open(path, "wb") as file:
        schema = fastavro.parse_schema(AVRO_SCHEMA)
        fastavro.writer(file, schema, avro_rows(), codec=codec, sync_interval=block)
