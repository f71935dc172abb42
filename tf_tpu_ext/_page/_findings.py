"""What a real TPU would refuse or be slow at in a program, and what to write instead."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from tf_tpu_ext._compilations import Compilation
from tf_tpu_ext._machine import Cluster, PaddedInput
from tf_tpu_ext.verdict import _advice
from tf_tpu_ext.verdict._records import Answer, Note, Verdict

Severity = Literal["refused", "slow"]

# Thresholds from which a finding is worth reporting.
_PADDING_WASTE = 0.25
_COMPILATIONS = 3
_SHOWN = 4

# Worst first.
_TITLES = {
    "host call in a loop": "the host is called in a loop",
    "emulated": "a type that a TPU emulates",
    "dynamic": "a size that is known only at run time",
    "small product": "a product that leaves most of a matrix unit idle",
}


@dataclasses.dataclass(frozen=True)
class Finding:
    """One finding.

    Attributes:
        severity: Whether a TPU would refuse the program or only be slow.
        what: What was found.
        detail: More about it.
        source: The Python line, as `file:line`; empty if unknown.
        advice: What to write instead.
        count: How often it was found.
    """

    severity: Severity
    what: str
    detail: str
    source: str
    advice: str
    count: int = 1


def find(
    programs: Sequence[Compilation],
    clusters: Sequence[Cluster],
    padded: Sequence[PaddedInput],
    verdicts: Sequence[Verdict],
) -> list[Finding]:
    """Returns all findings, starting with those that keep programs from running."""
    found = [
        *_refused(programs),
        *_refused_by_target(verdicts),
        *_compiled_often(programs),
        *_on_host(clusters),
        *_padded(padded, programs),
        *_wide_arguments(programs),
        *_noted(programs),
    ]
    return sorted(_merged(found), key=lambda each: each.severity != "refused")


def _merged(found: Sequence[Finding]) -> Iterable[Finding]:
    """Merges findings that several programs have in common."""
    merged: dict[tuple[str, str, str], Finding] = {}
    for each in found:
        key = each.what, each.detail, each.source
        old = merged.get(key)
        merged[key] = dataclasses.replace(each, count=each.count + (old.count if old else 0))
    return merged.values()


def _refused(programs: Sequence[Compilation]) -> Iterator[Finding]:
    for program in programs:
        if program.error:
            yield Finding(
                "refused",
                f"{program.function} does not compile",
                program.error,
                program.source,
                _advice.on_error(program.error) or "Read the error; a TPU would stop here, too.",
            )


def _refused_by_target(verdicts: Sequence[Verdict]) -> Iterator[Finding]:
    for verdict in verdicts:
        if verdict.answer in (Answer.REFUSED, Answer.OUT_OF_MEMORY):
            yield Finding(
                "refused",
                f"{verdict.target}: {verdict.program}, {verdict.answer.value}",
                verdict.error,
                verdict.source,
                verdict.advice or "See docs/verdict.md.",
            )


def _noted(programs: Sequence[Compilation]) -> Iterator[Finding]:
    by_line: dict[tuple[str, str, str], list[Note]] = {}
    for program in programs:
        for note in program.notes:
            place = note.source or program.source
            by_line.setdefault((note.kind, place, note.advice), []).append(note)
    for kind, title in _TITLES.items():
        for (noted, source, advice), notes in by_line.items():
            if noted != kind:
                continue
            # If a line has many shapes, some are enough.
            what = list(dict.fromkeys(note.what for note in notes if note.what))
            shown = ", ".join(what[:_SHOWN]) + (", ..." if len(what) > _SHOWN else "")
            op = next((f"op {note.op}" for note in notes if note.op), "")
            yield Finding(
                "slow",
                title,
                "; ".join(filter(None, (shown, op))),
                source,
                advice[0].upper() + advice[1:] + ".",
                sum(note.count for note in notes),
            )


def _wide_arguments(programs: Sequence[Compilation]) -> Iterator[Finding]:
    for program in programs:
        for number, argument in enumerate(program.arguments):
            if argument.dtype in ("float64", "complex128"):
                yield Finding(
                    "slow",
                    f"argument {argument.name or number} of {program.function} is {argument.dtype}",
                    "A TPU computes it in several steps, and it takes twice the memory.",
                    program.source,
                    f"Cast it to {_advice.NARROWER[argument.dtype]} in the input pipeline, or "
                    "where the variable is made.",
                )


def _compiled_often(programs: Sequence[Compilation]) -> Iterator[Finding]:
    again: dict[tuple[str, str], list[Compilation]] = {}
    for program in programs:
        if program.compared_with is not None and not program.error:
            again.setdefault((program.function, program.source), []).append(program)
    for (function, source), compiled in again.items():
        if len(compiled) + 1 < _COMPILATIONS:
            continue
        seconds = sum(program.seconds for program in compiled)
        yield Finding(
            "slow",
            f"{function} was compiled {len(compiled) + 1} times",
            f"{seconds:.1f} s went into compiling it again; a TPU's compiler takes longer. The "
            f"last time: {compiled[-1].compiled_again_because}.",
            source,
            _advice_on_changes(compiled[-1]),
        )


def _advice_on_changes(program: Compilation) -> str:
    texts = [text for change in program.changes for text in (change.before, change.now)]
    if not texts:
        return (
            "Make the tf.function once, outside of loops, and give it as arguments what it reads "
            "from outside."
        )
    if all("[" in text and not text.startswith(("'", '"')) for text in texts):
        return (
            "Keep shapes and types the same: batch with drop_remainder=True, pad to a few sizes "
            "(tf.data's bucket_by_sequence_length), and cast in the input pipeline."
        )
    return "Pass what changes as a tensor, tf.constant(value), so that it is not compiled in."


def _on_host(clusters: Sequence[Cluster]) -> Iterator[Finding]:
    for cluster in clusters:
        if not cluster.calls:
            continue
        how = (
            "called directly"
            if cluster.folded
            else f"in a graph on the host ({cluster.not_folded_because})"
        )
        yield Finding(
            "slow",
            f"{cluster.calls} calls of the host",
            f"{how}; cores waited {1e3 * cluster.waiting_seconds:.1f} ms here. On a TPU each call "
            "also crosses from the chip to the host and back.",
            cluster.source,
            "Move it to the input pipeline or behind the step; for summaries and prints, call it "
            "every hundredth step.",
        )


def _padded(padded: Sequence[PaddedInput], programs: Sequence[Compilation]) -> Iterator[Finding]:
    by_id = {program.program_id: program for program in programs}
    for each in padded:
        if each.waste < _PADDING_WASTE:
            continue
        program = by_id.get(each.program_id)
        yield Finding(
            "slow",
            f"{100 * each.waste:.0f} % of input {each.name or each.argument} is padding",
            f"{each.padding} of {each.elements} elements, which the cores compute with, too.",
            program.source if program else "",
            "Batch examples of like size (tf.data's bucket_by_sequence_length), or lower "
            "maximum_shapes.",
        )
