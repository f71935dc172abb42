"""`Options`: how programs are traced, compiled and started, for all of them or for some."""

from __future__ import annotations

import contextvars
import dataclasses
from typing import Any

# The field of TensorFlow's TPUCompileOptions that carries options; cc/program/traced_options.h
# reads it. Protocol buffers keep fields that they do not know.
_FIELD = 7100
_LENGTH_DELIMITED = 2


@dataclasses.dataclass(frozen=True)
class Options:
    """How programs are traced, compiled and started.

    `configure` sets the options of the process. As a context manager, `Options` holds for the
    programs that are traced in it by this thread, whenever and wherever they are compiled and run.
    What is left out is as in the enclosing context, and as `configure` says outside of any.

    A `tf.function` that was traced before keeps what it was traced with: make another one, or call
    it with other shapes. The gradient of a `tf.function(jit_compile=True)` of its own goes by
    `configure`. Of a function with several programs, `launch_from_host=False` of one counts for
    all.

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
        fold_host_calls: Whether programs call clusters of `outside_compilation` by themselves,
            about a microsecond a call, where a cluster needs nothing of the host but its arguments.
            The others always run in a host graph beside the program, with the same results.
        share_updates: Whether what every replica would compute alike from combined gradients runs
            once for all replicas, and overwrites mirrored variables in the one buffer that they
            share; and whether programs of one core overwrite their variables. The results are the
            same.
        stack_replicas: Whether groups of replicas run as one program where that saves work. The
            results differ by rounding only.
        launch_from_host: Whether functions start the programs of their cores from the host, if all
            they have on a core is the program and its arguments, and on the thread of the caller,
            if they do nothing else on the host. Otherwise TensorFlow starts an executor for each
            core. The results are the same.
        tensorflow_kernels: Whether programs compute convolutions and pools by TensorFlow's own CPU
            kernels, where those are faster than XLA's code.
    """

    fold_host_calls: bool | None = None
    share_updates: bool | None = None
    stack_replicas: bool | None = None
    launch_from_host: bool | None = None
    tensorflow_kernels: bool | None = None

    def __post_init__(self) -> None:
        """Raises TypeError if a field is no switch."""
        for name, value in vars(self).items():
            if value is not None and not isinstance(value, bool):
                raise TypeError(
                    f"`{name}` must be True, False, or None to leave it as it is. "
                    f"Received: {name}={value!r} ({type(value)})"
                )

    def __enter__(self) -> Options:
        """Begins to hold for programs that this thread traces."""
        _entered.set((*_entered.get(), self.over(current())))
        return self

    def __exit__(self, *error: object) -> None:
        """Ends what `__enter__` began."""
        _entered.set(_entered.get()[:-1])

    def over(self, other: Options) -> Options:
        """Returns these options, with those of `other` where these leave something out.

        Example:
            >>> options = Options(stack_replicas=False).over(Options(share_updates=False))
            >>> print(options.stack_replicas, options.share_updates, options.fold_host_calls)
            False False None
        """
        return dataclasses.replace(other, **self._given())

    def _given(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}


# From the outermost to the innermost, each with what it takes from those around it.
_entered: contextvars.ContextVar[tuple[Options, ...]] = contextvars.ContextVar(
    "tf_tpu_ext_options", default=()
)


def current() -> Options:
    """Returns what holds for programs that are traced here and now."""
    entered = _entered.get()
    return entered[-1] if entered else Options()


def to_text(options: Options) -> str:
    """Returns the options that are given as the native library reads them."""
    return ";".join(f"{name}={int(value)}" for name, value in options._given().items())


def compile_options() -> bytes:
    """Returns `current` as a serialized TPUCompileOptions, which a traced program carries."""
    text = to_text(current()).encode()
    if not text:
        return b""
    return _varint(_FIELD << 3 | _LENGTH_DELIMITED) + _varint(len(text)) + text


def _varint(number: int) -> bytes:
    """Returns a number as protocol buffers write it."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])
