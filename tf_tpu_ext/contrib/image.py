"""Projective transforms of images, from `tf.contrib.image`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_RANKS = (2, 3, 4)


def transform(
    images: Any,
    transforms: Any,
    interpolation: str = "NEAREST",
    output_shape: Any | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """Applies a projective transform to images.

    Pixel `(x, y)` of the result is pixel `((a0 x + a1 y + a2) / k, (b0 x + b1 y + b2) / k)` of the
    input, with `k = c0 x + c1 y + 1`. Pixels outside the input are 0.

    Args:
        images: Shape `[height, width]`, `[height, width, channels]` or `[images, height, width,
            channels]`, of type uint8, int32, int64, float16, float32 or float64.
        transforms: `[a0, a1, a2, b0, b1, b2, c0, c1]` for all images, or one such row per image, of
            shape `[images, 8]`.
        interpolation: "NEAREST" or "BILINEAR".
        output_shape: `[height, width]` of the result, in pixels. None keeps the images' size.
        name: The name of the op.

    Returns:
        The transformed images, with the same type.

    Raises:
        ValueError: The rank of the images is not 2, 3 or 4.

    Example:
        >>> image = tf.constant([[1, 2], [3, 4]], tf.uint8)
        >>> transform(image, [0, 1, 0, 1, 0, 0, 0, 0]).numpy().tolist()  # Swaps x and y.
        [[1, 3], [2, 4]]

    Today: https://www.tensorflow.org/api_docs/python/tf/raw_ops/ImageProjectiveTransformV3
    """
    images = tf.convert_to_tensor(images)
    rank = images.shape.rank
    if rank not in _RANKS:
        raise ValueError(f"transform got images of shape {images.shape}, expected rank 2, 3 or 4.")
    transforms = tf.cast(transforms, tf.float32)
    if transforms.shape.rank == 1:
        transforms = transforms[tf.newaxis]
    batch = images
    if rank < 4:
        batch = batch[tf.newaxis]
    if rank == 2:
        batch = batch[..., tf.newaxis]
    moved = tf.raw_ops.ImageProjectiveTransformV3(
        images=batch,
        transforms=transforms,
        output_shape=tf.shape(batch)[1:3] if output_shape is None else output_shape,
        fill_value=0.0,
        interpolation=interpolation.upper(),
        fill_mode="CONSTANT",
        name=name,
    )
    if output_shape is None:
        moved.set_shape(batch.shape)
    if rank == 2:
        moved = moved[..., 0]
    return moved[0] if rank < 4 else moved


def rotate(
    images: Any, angles: Any, interpolation: str = "NEAREST", name: str | None = None
) -> tf.Tensor:
    """Rotates images counterclockwise around their center.

    Args:
        images: As for `transform`.
        angles: The angle in radians, as a scalar for all images or a tensor of shape `[images]`.
        interpolation: "NEAREST" or "BILINEAR".
        name: The name of the op.

    Returns:
        The rotated images, with the same shape and type.

    Raises:
        ValueError: The rank of the images is not 2, 3 or 4.

    Example:
        >>> image = tf.constant([[1, 2], [3, 4]], tf.uint8)
        >>> rotate(image, 3.14159 / 2).numpy().tolist()
        [[2, 4], [1, 3]]
    """
    images = tf.convert_to_tensor(images)
    first = 1 if images.shape.rank == 4 else 0
    height, width = (tf.cast(tf.shape(images)[first + i] - 1, tf.float32) for i in (0, 1))
    angles = tf.reshape(tf.cast(angles, tf.float32), [-1])
    cosine, sine = tf.cos(angles), tf.sin(angles)
    x = (width - (cosine * width - sine * height)) / 2
    y = (height - (sine * width + cosine * height)) / 2
    zero = tf.zeros_like(angles)
    transforms = tf.stack([cosine, -sine, x, sine, cosine, y, zero, zero], axis=1)
    return transform(images, transforms, interpolation, name=name)


def translate(
    images: Any, translations: Any, interpolation: str = "NEAREST", name: str | None = None
) -> tf.Tensor:
    """Shifts images to the right and down.

    Args:
        images: As for `transform`.
        translations: `[dx, dy]` in pixels for all images, or of shape `[images, 2]`.
        interpolation: "NEAREST" or "BILINEAR".
        name: The name of the op.

    Returns:
        The shifted images, with the same shape and type.

    Raises:
        ValueError: The rank of the images is not 2, 3 or 4.

    Example:
        >>> image = tf.constant([[1, 2], [3, 4]], tf.uint8)
        >>> translate(image, [1, 0]).numpy().tolist()
        [[0, 1], [0, 3]]
    """
    shifts = tf.reshape(tf.cast(translations, tf.float32), [-1, 2])
    one, zero = tf.ones_like(shifts[:, 0]), tf.zeros_like(shifts[:, 0])
    transforms = tf.stack([one, zero, -shifts[:, 0], zero, one, -shifts[:, 1], zero, zero], axis=1)
    return transform(images, transforms, interpolation, name=name)


def compose_transforms(*transforms: Any) -> tf.Tensor:
    """Returns the product of several transforms.

    Args:
        *transforms: The transforms, each of shape `[8]` or `[images, 8]`, as for `transform`.

    Returns:
        One transform, of shape `[1, 8]` or `[images, 8]`.

    Raises:
        ValueError: There are no transforms.

    Example:
        >>> right, down = [1, 0, -1, 0, 1, 0, 0, 0], [1, 0, 0, 0, 1, -1, 0, 0]
        >>> compose_transforms(right, down).numpy().tolist()
        [[1.0, 0.0, -1.0, 0.0, 1.0, -1.0, 0.0, 0.0]]
    """
    if not transforms:
        raise ValueError("compose_transforms got no transform, expected at least one.")
    matrices = [_as_matrices(each) for each in transforms]
    whole = matrices[0]
    for matrix in matrices[1:]:
        whole = tf.matmul(whole, matrix)
    flat = tf.reshape(whole, [-1, 9])
    return flat[:, :8] / flat[:, 8:]


def _as_matrices(transforms: Any) -> tf.Tensor:
    flat = tf.reshape(tf.cast(transforms, tf.float32), [-1, 8])
    return tf.reshape(tf.concat([flat, tf.ones_like(flat[:, :1])], axis=1), [-1, 3, 3])
