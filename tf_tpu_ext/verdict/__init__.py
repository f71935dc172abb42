"""What a real TPU's compiler says about the programs that run here; see docs/verdict.md."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from tf_tpu_ext.verdict._asking import asker
from tf_tpu_ext.verdict._records import Answer, Buffer, Cost, Memory, Note, Verdict
from tf_tpu_ext.verdict._targets import Target, parse

__all__ = ["Answer", "Buffer", "Check", "Cost", "Memory", "Note"]


def parse_all(names: str | Sequence[str]) -> tuple[Target, ...]:
    """Returns the targets for names such as `v5e-8`; an empty string means none.

    Raises:
        ValueError: There is no such TPU, or the targets have different numbers of cores.

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
        """Begins at the verdict with that number."""
        self._first = first
        self._last: int | None = None

    def verdicts(self) -> tuple[Verdict, ...]:
        """Returns the verdicts on the programs that were compiled in the context.

        Waits for verdicts that the compiler has not given yet.

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
        """Waits for the missing verdicts and ignores programs compiled from now on.

        Example:
            >>> import tf_tpu_ext
            >>> with tf_tpu_ext.compile_for("v3-8") as check:
            ...     check.end()
        """
        asker.wait()
        self._last = len(asker.verdicts())


@contextlib.contextmanager
def compile_for(target: str | Sequence[str]) -> Iterator[Check]:
    """Asks a real TPU's compiler about each program that is compiled in the context.

    The compiler is Google's own, from the package libtpu, which needs no TPU: `pip install
    'tf_tpu_ext[verdict]'`. It runs in the background in a separate process. Programs run as usual,
    whatever it says. In the context, the virtual TPU has the target's topology and computes
    products as a TPU does (`matmul_precision` in `tf_tpu_ext.Options`), unless `configure` says
    otherwise.

    A program that was already compiled with the same options is not recompiled, so it has no
    verdict.

    Args:
        target: A TPU slice, such as `v5e-8` or `v5e:2x4`, or several with the same number of
            cores. All generations from v2 to 7x are supported.

    Yields:
        The check, whose `verdicts()` returns what the compiler says.

    Raises:
        ValueError: There is no such TPU.
        RuntimeError: TensorFlow has already created its devices with a different number of cores.

    Example:
        >>> import tensorflow as tf
        >>> import tf_tpu_ext
        >>> with tf_tpu_ext.compile_for("v3-8") as check:
        ...     _ = tf_tpu_ext.tpu.rewrite(lambda x: x * 2.0, [tf.ones([8, 128])])
        >>> [verdict] = check.verdicts()
        >>> print(verdict.target, verdict.num_replicas)
        v3-8 1

    docs/verdict.md describes what the compiler is asked and what it reports.
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
    """Returns what the target's compiler says about each program so far, in order.

    Waits for missing answers. The result is empty unless `configure(target=...)` or `compile_for`
    has named a target.

    Example:
        >>> import tf_tpu_ext
        >>> [verdict.program for verdict in tf_tpu_ext.verdicts() if not verdict.ok]
        []
    """
    asker.wait()
    return asker.verdicts()
