"""What to write instead of code that a TPU refuses, emulates or is slow at."""

from __future__ import annotations

import re

NARROWER = {
    "float64": "float32",
    "int64": "int32",
    "uint64": "uint32",
    "complex128": "complex64",
}
_ON_NOTES = {
    "dynamic": "give it a fixed size, as by batch(drop_remainder=True) or padding: a TPU computes "
    "the whole bound anyway",
    "small product": "make the dimensions multiples of 128, and the batch one of 8: a TPU fills "
    "smaller ones up with zeros and multiplies those, too",
    "host call in a loop": "call the host once after the loop, with what the rounds have collected",
}
SMALLER = (
    "Make the batch smaller, compute in bfloat16, recompute activations (tf.recompute_grad), or "
    "split the model over more cores."
)
_ELSEWHERE = (
    "Run the op on the host by tf_tpu_ext.tpu.outside_compilation, or in the input pipeline."
)
# The wording of the TPU compiler, and of TensorFlow when it converts a graph to an XLA program.
_OF_COMPILER = (
    (r"CompileTimeHbmOom|exceeds available HBM", SMALLER),
    (
        r"(?i)\bc128\b|complex128",
        f"A TPU emulates complex128 and lacks some ops for it. Use {NARROWER['complex128']}.",
    ),
    (
        r"Non-SPMD model parallelism",
        "This compiler splits ops over the cores of a replica, and does not take ops placed by "
        "tpu.core(). Use XLAOptions(use_spmd_for_xla_partitioning=True) and sharding annotations.",
    ),
    (
        r"(?i)\bf64\b|double",
        f"A TPU emulates float64 and lacks some ops for it. Use {NARROWER['float64']}.",
    ),
    (
        r"(?i)custom.?call",
        f"The op is code for another device. Use TensorFlow's own ops. {_ELSEWHERE}",
    ),
)
_OF_TENSORFLOW = (
    (r"(?i)string", f"A TPU has no strings. {_ELSEWHERE}"),
    (
        r"(?i)must be a compile-time constant|not a compile-time constant",
        "A TPU compiles for fixed shapes: compute the shape from Python values, or pad to a bound.",
    ),
    (
        r"(?i)unsupported op|no .*kernel|not compilable|not supported",
        f"A TPU's compiler lacks the op. {_ELSEWHERE}",
    ),
    (r"(?i)dynamic", "Give it a fixed size, as by batch(drop_remainder=True)."),
)


def on_note(kind: str, what: str) -> str:
    """Returns what to write instead of the code that a note of that kind describes."""
    return f"use {NARROWER[what]}" if kind == "emulated" else _ON_NOTES[kind]


def on_compiler_error(error: str) -> str:
    """Returns what to write instead of code that the TPU compiler refuses; empty if unknown."""
    return next((say for sign, say in _OF_COMPILER if re.search(sign, error)), "")


def on_error(error: str) -> str:
    """Returns what to write instead of code that no TPU program can have; empty if unknown."""
    return next((say for sign, say in _OF_TENSORFLOW if re.search(sign, error)), "")
