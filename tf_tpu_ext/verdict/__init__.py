"""What the compiler of a real TPU says of the programs that run here, see docs/verdict.md."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from tf_tpu_ext.verdict._asking import asker
from tf_tpu_ext.verdict._records import Answer, Buffer, Cost, Memory, Note, Verdict
from tf_tpu_ext.verdict._targets import Target, parse

__all__ = ["Answer", "Buffer", "Check", "Cost", "Memory", "Note"]


def parse_all(names: str | Sequence[str]) -> tuple[Target, ...]:
    """Returns the targets of names such as `v5e-8`; an empty text is none.

    Raises:
        ValueError: There is no such TPU, or they differ in their number of cores.

    Example:
        >>> from tf_tpu_ext import verdict
        >>> [target.cores for target in verdict.parse_all(["v5e-8", "v3:2x2"])]
        [8, 8]
    """
    given = [names] if isinstance(names, str) else list(names)
    targets = tuple(parse(name) for name in given if name)
    if len({target.cores for target in targets}) > 1:
        cores = ", ".join(f"{target.name} has {target.cores}" for target in targets)
        raise ValueError(
            "Programs are compiled for one number of cores, so all targets must have as many: "
            f"{cores}. Check for them one after the other."
        )
    return targets


class Check:
    """The programs of a `compile_for` context.

    Example:
        >>> import tf_tpu_ext
        >>> with tf_tpu_ext.compile_for("v3-8") as check:
        ...     pass
        >>> len(check.verdicts())
        0
    """

    def __init__(self, first: int) -> None:
        """Begins at the verdict of that number."""
        self._first = first
        self._last: int | None = None

    def verdicts(self) -> tuple[Verdict, ...]:
        """Returns the verdicts on the programs that were compiled in the context.

        Waits for those that the compiler has not told yet.

        Example:
            >>> import tf_tpu_ext
            >>> with tf_tpu_ext.compile_for("v3-8") as check:
            ...     pass
            >>> check.verdicts()
            ()
        """
        if self._last is None:
            asker.wait()
        return asker.verdicts()[self._first : self._last]

    def end(self) -> None:
        """Waits for the missing verdicts, and leaves out what is compiled from now on.

        Example:
            >>> import tf_tpu_ext
            >>> with tf_tpu_ext.compile_for("v3-8") as check:
            ...     check.end()
        """
        asker.wait()
        self._last = len(asker.verdicts())


@contextlib.contextmanager
def compile_for(target: str | Sequence[str]) -> Iterator[Check]:
    """Asks the compiler of a real TPU about each program that is compiled in the context.

    The compiler is Google's own, from the package libtpu, which needs no TPU: `pip install
    'tf_tpu_ext[verdict]'`. It runs in the background, in a process of its own. Programs run as
    ever, whatever it says. In the context the virtual TPU has the target's topology, and computes
    products as a TPU does (`matmul_precision` of `tf_tpu_ext.Options`) unless `configure` has said
    otherwise.

    A program that was compiled before with the same options is not compiled again, so it has no
    verdict.

    Args:
        target: A TPU slice, such as `v5e-8` or `v5e:2x4`, or several with the same number of
            cores. All generations from v2 to 7x can be named.

    Yields:
        The check, whose `verdicts()` tells what the compiler says.

    Raises:
        ValueError: There is no such TPU.
        RuntimeError: TensorFlow has already created its devices, with another number of cores.

    Example:
        >>> import tensorflow as tf
        >>> import tf_tpu_ext
        >>> with tf_tpu_ext.compile_for("v3-8") as check:
        ...     _ = tf_tpu_ext.tpu.rewrite(lambda x: x * 2.0, [tf.ones([8, 128])])
        >>> [verdict] = check.verdicts()
        >>> print(verdict.target, verdict.num_replicas)
        v3-8 1

    See docs/verdict.md for what is asked and what is told.
    """
    from tf_tpu_ext import _machine

    before = [old.name for old in asker.targets]
    _machine.configure(target=target)
    asker.wait()
    check = Check(len(asker.verdicts()))
    try:
        yield check
    finally:
        check.end()
        _machine.configure(target=before)


def verdicts() -> tuple[Verdict, ...]:
    """Returns what the target's compiler says of each program so far, in their order.

    Waits for the answers that are missing. Empty unless `configure(target=...)` or `compile_for`
    named a target.

    Example:
        >>> import tf_tpu_ext
        >>> [verdict.program for verdict in tf_tpu_ext.verdicts() if not verdict.ok]
        []
    """
    asker.wait()
    return asker.verdicts()
