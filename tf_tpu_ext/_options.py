"""`Options`: how programs are traced, compiled and started."""

from __future__ import annotations

import contextvars
import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

# The field of TensorFlow's TPUCompileOptions that carries the options; cc/program/traced_options.h
# reads it. Protocol buffers keep unknown fields.
_FIELD = 7100
_LENGTH_DELIMITED = 2
_PRECISIONS = ("full", "tpu")


@dataclasses.dataclass(frozen=True)
class Options:
    """How programs are traced, compiled and started.

    `configure` sets the options of the process. As a context manager, `Options` applies to the
    programs that this thread traces inside the context, no matter when and where they are compiled
    and run. An option that is omitted or None comes from the enclosing context, or from `configure`
    outside any context.

    A trace keeps the options it was made with. To apply others to a `tf.function` that has already
    been traced, make a new function, or call it with other shapes. The separate gradient function
    of a `tf.function(jit_compile=True)` uses the options of `configure`. If a function contains
    several programs, `launch_from_host=False` on one applies to all.

    Example:
        >>> import tensorflow as tf
        >>> import tf_tpu_ext
        >>> @tf.function
        ... def step(image, kernel):
        ...     [result] = tf_tpu_ext.tpu.rewrite(
        ...         lambda x, y: tf.nn.conv2d(x, y, 1, "SAME"), [image, kernel])
        ...     return result
        >>> with tf_tpu_ext.Options(tensorflow_kernels=False):
        ...     _ = step(tf.ones([1, 8, 8, 3]), tf.ones([3, 3, 3, 4]))
        >>> tf_tpu_ext.compilation_stats().programs[-1].tensorflow_kernels
        0

    Attributes:
        fold_host_calls: Whether a program directly calls those `outside_compilation` clusters that
            need nothing from the host except their arguments. Such a call takes about a
            microsecond. All other clusters run in a graph on the host. The results are the same.
        share_updates: Whether the part of a step that all replicas would compute identically from
            their combined gradients runs once for all of them and updates mirrored variables in
            place, in a buffer that the replicas share. Also whether single-core programs update
            their variables in place. The results are the same.
        stack_replicas: Whether groups of replicas run as one program where that saves work. The
            results differ only by rounding.
        launch_from_host: Whether a function starts its programs from the host if it has nothing
            else on their cores, and on the calling thread if it does nothing else on the host.
            Otherwise TensorFlow starts an executor for each core. The results are the same.
        tensorflow_kernels: Whether programs compute convolutions, pooling and products of bfloat16
            with TensorFlow's CPU kernels where those are faster than XLA's code. The results
            differ only by rounding.
        matmul_precision: `"full"`, or `"tpu"` to compute float32 products and convolutions as a TPU
            does: operands are rounded to bfloat16, and products are summed in float32. If the
            program asks XLA for a higher precision, it gets it: HIGH takes three products of parts
            of the operands, HIGHEST the operands as they are.
            `tf.config.experimental.enable_tensor_float_32_execution(False)` asks for HIGHEST
            everywhere. If never set, it is `"tpu"` for programs with a target (see docs/verdict.md)
            and `"full"` otherwise.
        compute: Whether programs compute. With False, a program is compiled for the targets
            (docs/verdict.md) but does nothing here: variables keep their values, and other results
            are zeros. Programs that call the host, use infeed or outfeed, or return dynamic sizes
            compute anyway.
        check: Whether programs are watched while they run, for `findings`; see docs/check.md.
            They then run as written, each replica on its own, and more slowly.

    Raises:
        TypeError: A field is not True, False or None.
        ValueError: `matmul_precision` is neither `"full"`, `"tpu"` nor None.
    """

    fold_host_calls: bool | None = None
    share_updates: bool | None = None
    stack_replicas: bool | None = None
    launch_from_host: bool | None = None
    tensorflow_kernels: bool | None = None
    matmul_precision: Literal["full", "tpu"] | None = None
    compute: bool | None = None
    check: bool | None = None

    def __post_init__(self) -> None:
        """Checks that every field has a valid value."""
        if self.matmul_precision not in (*_PRECISIONS, None):
            raise ValueError(
                '`matmul_precision` must be "full", "tpu", or None to leave it unchanged. '
                f"Received: matmul_precision={self.matmul_precision!r}"
            )
        for name, value in vars(self).items():
            if name == "matmul_precision":
                continue
            if value is not None and not isinstance(value, bool):
                raise TypeError(
                    f"`{name}` must be True, False, or None to leave it unchanged. "
                    f"Received: {name}={value!r} ({type(value)})"
                )

    def __enter__(self) -> Options:
        """Applies the options to programs that this thread traces from now on."""
        _entered.set((*_entered.get(), self.over(current())))
        return self

    def __exit__(self, *error: object) -> None:
        """Restores the options of the enclosing context."""
        _entered.set(_entered.get()[:-1])

    def over(self, other: Options) -> Options:
        """Returns these options, with values from `other` where these are None.

        Example:
            >>> options = Options(stack_replicas=False).over(Options(share_updates=False))
            >>> print(options.stack_replicas, options.share_updates, options.fold_host_calls)
            False False None
        """
        return dataclasses.replace(other, **self._given())

    def _given(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}


# The contexts from the outermost to the innermost, each merged with those around it.
_entered: contextvars.ContextVar[tuple[Options, ...]] = contextvars.ContextVar(
    "tf_tpu_ext_options", default=()
)


def current() -> Options:
    """Returns the options for programs that this thread traces now."""
    entered = _entered.get()
    return entered[-1] if entered else Options()


def to_text(options: Options) -> str:
    """Returns the options that are not None, in the format that the native library reads."""
    return ";".join(
        f"{name}={int(value == 'full' if name == 'matmul_precision' else value)}"
        for name, value in options._given().items()
    )


def from_switches(switches: Mapping[str, bool]) -> Options:
    """Returns the options that the native library describes by switches with the same names."""
    options: dict[str, Any] = dict(switches)
    options["matmul_precision"] = "full" if switches["matmul_precision"] else "tpu"
    return Options(**options)


def compile_options() -> bytes:
    """Returns `current()` as a serialized TPUCompileOptions, to be stored in a traced program."""
    text = to_text(current()).encode()
    if not text:
        return b""
    return _varint(_FIELD << 3 | _LENGTH_DELIMITED) + _varint(len(text)) + text


def _varint(number: int) -> bytes:
    """Returns a number in the varint encoding of protocol buffers."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])
