"""Reads WAV files with tensorflow-io; spoken_digits.py runs this under TensorFlow 2.17."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
import tensorflow_io as tfio

# Windows of 32 ms, 16 ms apart, at 8,000 samples per second.
WINDOW, STRIDE, MELS = 256, 128, 32


def make_dataset(paths: Sequence[str], labels: Sequence[int], samples: int) -> tf.data.Dataset:
    """Returns mel spectrograms of recordings, cut or padded to `samples`, and their labels."""

    def read(path: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        wave = tfio.audio.decode_wav(tf.io.read_file(path), dtype=tf.int16)[:samples, 0]
        wave = tf.cast(wave, tf.float32) / 32768.0
        wave = tf.pad(wave, [[0, samples - tf.shape(wave)[0]]])
        spectrogram = tfio.audio.spectrogram(wave, nfft=WINDOW, window=WINDOW, stride=STRIDE)
        mel = tfio.audio.melscale(spectrogram, rate=8000, mels=MELS, fmin=0, fmax=4000)
        return tf.ensure_shape(tf.math.log(mel + 1e-3), [samples // STRIDE, MELS]), label

    dataset = tf.data.Dataset.from_tensor_slices((list(paths), list(labels)))
    return dataset.map(read, num_parallel_calls=tf.data.AUTOTUNE)
