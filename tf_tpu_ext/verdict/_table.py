"""Verdicts as text and as JSON."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
from collections.abc import Iterator, Sequence

from tf_tpu_ext.verdict._records import Answer, Buffer, Cost, Memory, Note, Verdict

OF_PADDING = "Tiles want the last size to be a multiple of 128 and the one before of 8."
_MOST_OF_A_KIND = 5
_HEADINGS = ("program", "verdict", "memory", "left", "time", "of peak", "bound by")


def to_json(verdicts: Sequence[Verdict]) -> str:
    """Returns the verdicts as a JSON array, with `ok` and the memory that is needed and left."""
    return json.dumps([_fields(verdict) for verdict in verdicts], indent=1)


def _fields(verdict: Verdict) -> dict[str, object]:
    fields = {**dataclasses.asdict(verdict), "ok": verdict.ok}
    if verdict.memory is not None:
        fields["memory"] |= {"needed": verdict.memory.needed, "left": verdict.memory.left}
    return fields


def to_text(verdicts: Sequence[Verdict]) -> str:
    """Returns a table for each target, followed by the details of each program."""
    lines: list[str] = []
    for target, group in itertools.groupby(
        sorted(verdicts, key=lambda verdict: verdict.target), lambda verdict: verdict.target
    ):
        told = list(group)
        good = sum(verdict.ok for verdict in told)
        lines.append(f"{target}: {good} of {len(told)} programs compile and fit")
        rows = [_HEADINGS, *(_row(verdict) for verdict in told)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_HEADINGS))]
        for row in rows:
            cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
            lines.append("  " + "  ".join(cells).rstrip())
        for verdict in told:
            details = list(_details(verdict))
            if details:
                lines.append(f"{verdict.program}:")
                lines += [f"  {line}" for line in details]
    return "\n".join(lines)


def _row(verdict: Verdict) -> tuple[str, ...]:
    memory, cost = verdict.memory, verdict.cost
    share = cost.peak_share if cost else None
    return (
        verdict.program,
        verdict.answer.value,
        size(memory.needed) if memory else "",
        size(memory.left) if memory else "",
        expected_time(cost) if cost else "",
        f"{100 * share:.1f} %" if share is not None else "",
        cost.bound if cost else "",
    )


def _details(verdict: Verdict) -> Iterator[str]:
    if verdict.error:
        yield f"{verdict.answer.value}: {_first_line(verdict.error)}"
    if verdict.op:
        yield f"op {verdict.op}{_at(verdict.source)}"
    if verdict.advice:
        yield f"advice: {verdict.advice}"
    if verdict.memory:
        yield _memory(verdict.memory)
    if verdict.cost:
        yield _cost(verdict.cost)
        for call in verdict.cost.untimed_calls:
            yield f"time unknown: {call}"
    if verdict.answer is Answer.OUT_OF_MEMORY:
        for buffer in verdict.largest:
            yield f"large: {_buffer(buffer)}"
    for buffer in verdict.padded:
        yield f"padding: {size(buffer.padding)} of {_buffer(buffer)}"
    if verdict.memory and verdict.cost and verdict.padded:
        yield (
            f"padding in all: {size(verdict.memory.padding)} of arguments and results; one run "
            f"reads and writes {size(verdict.cost.padding_bytes)} of it, in "
            f"{seconds(verdict.cost.padding_seconds)} or more. {OF_PADDING}"
        )
    yield from _notes(verdict.notes)
    if verdict.not_asked:
        yield f"not asked: {verdict.not_asked}"


def _notes(notes: Sequence[Note]) -> Iterator[str]:
    """Yields some notes of each kind, since products, for example, may have many shapes."""
    of_kind = collections.Counter(note.kind for note in notes)
    for kind, number in of_kind.items():
        told = [note for note in notes if note.kind == kind]
        yield from map(note_text, told[:_MOST_OF_A_KIND])
        if number > _MOST_OF_A_KIND:
            yield f"{number - _MOST_OF_A_KIND} more notes on {kind}s"


def note_text(note: Note) -> str:
    """Returns a note as a line."""
    what = f"{note.kind}: {note.what}" if note.what else note.kind
    times = f"{note.count} instructions" if note.count > 1 else ""
    first = "first " if note.count > 1 else ""
    place = f"{first}{note.op}{_at(note.source)}" if note.op else ""
    return f"{', '.join(filter(None, (what, times, place)))}; {note.advice}"


def _memory(memory: Memory) -> str:
    return (
        f"memory of {size(memory.available)}: arguments {size(memory.arguments)} (variables that "
        f"are updated: {size(memory.variables)}), results {size(memory.results)}, temporaries "
        f"{size(memory.temporaries)}, code {size(memory.code)}"
    )


def _cost(cost: Cost) -> str:
    text = (
        f"one run: {cost.flops:.3g} operations, {size(int(cost.bytes_accessed))} read and written"
    )
    if cost.collectives:
        text += f", {cost.collectives} collectives of {size(cost.collective_bytes)}"
    return text


def _buffer(buffer: Buffer) -> str:
    return f"{size(buffer.bytes)} {buffer.shape}, {buffer.op}{_at(buffer.source)}"


def _at(source: str) -> str:
    return f" at {source}" if source else ""


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def expected_time(cost: Cost) -> str:
    """Returns the time that the compiler expects, in human-readable form."""
    if cost.seconds is None:
        return "unknown"
    return f"over {seconds(cost.seconds)}" if cost.untimed else seconds(cost.seconds)


def seconds(time: float) -> str:
    """Returns a time in seconds in human-readable form, such as `3.5 ms`.

    Example:
        >>> from tf_tpu_ext.verdict import _table
        >>> print(_table.seconds(3.4e-5), _table.seconds(0.0125), _table.seconds(90))
        34 us 12.5 ms 90 s
    """
    if time < 1e-3:
        return f"{time * 1e6:.3g} us"
    return f"{time * 1e3:.3g} ms" if time < 1 else f"{time:.3g} s"


def size(number: int) -> str:
    """Returns a number of bytes in human-readable form, such as `15.7 GiB`.

    Example:
        >>> from tf_tpu_ext.verdict import _table
        >>> print(_table.size(512), _table.size(3 << 20), _table.size(-(1 << 30)))
        512 B 3.0 MiB -1.0 GiB
    """
    amount = float(number)
    for unit in ("B", "KiB", "MiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"
