"""How many ops of the programs that tests run are computed by TensorFlow's kernels."""

from __future__ import annotations

import tf_tpu_ext


def uses() -> dict[int, int]:
    """How often each program was asked for."""
    programs = tf_tpu_ext.compilation_stats().programs
    return {program.program_id: 1 + program.hits for program in programs}


def kernels_since(before: dict[int, int]) -> int:
    """How many ops kernels compute of the program that was asked for since then."""
    programs = tf_tpu_ext.compilation_stats().programs
    used = [p for p in programs if 1 + p.hits > before.get(p.program_id, 0)]
    assert len(used) == 1
    return used[0].tensorflow_kernels
