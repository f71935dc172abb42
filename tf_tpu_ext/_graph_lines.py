"""The Python lines of graphs that sessions run: a session's native graph does not have them."""

from __future__ import annotations

import collections
import dataclasses
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from tf_tpu_ext._user_lines import user_line
from tf_tpu_ext.verdict._records import Note

_MOST = 100_000


class _Lines:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: collections.OrderedDict[str, str] = collections.OrderedDict()

    def note_computation(self, context: Any) -> None:
        """Remembers the lines of a computation that has just been traced for a session.

        Args:
            context: Its `TPUReplicateContext`, whose graph is the default graph.
        """
        from tensorflow.python.framework import func_graph, ops

        from tf_tpu_ext.tpu import _cluster_checks

        graph = ops.get_default_graph()
        # The ops of functions have their lines in the native graph.
        if not isinstance(graph, func_graph.FuncGraph):
            self.note(_cluster_checks.ops_of(graph, context.name))

    def note(self, operations: Iterable[Any]) -> None:
        """Remembers the lines of ops and of the functions that they call, including loop bodies.

        If several ops have the same name, the last one counts.
        """
        found = {op.name: user_line(op.traceback or ()) for op in _with_called(operations)}
        with self._lock:
            self._lines.update(found)
            while len(self._lines) > _MOST:
                self._lines.popitem(last=False)

    def fill(self, module: Any) -> bool:
        """Writes lines into the metadata of instructions that have an op but no line.

        Args:
            module: An `HloModuleProto`.

        Returns:
            Whether any lines were written.
        """
        filled = False
        with self._lock:
            if not self._lines:
                return filled
            for computation in module.computations:
                for instruction in computation.instructions:
                    metadata = instruction.metadata
                    if metadata.source_file or not metadata.op_name:
                        continue
                    file, _, line = self._find(metadata.op_name).rpartition(":")
                    if file:
                        metadata.source_file, metadata.source_line = file, int(line)
                        filled = True
        return filled

    def fill_notes(self, notes: Iterable[Note]) -> tuple[Note, ...]:
        """Returns the notes, with lines filled in for those that have an op but no line."""
        with self._lock:
            return tuple(
                note if note.source else dataclasses.replace(note, source=self._find(note.op))
                for note in notes
            )

    def find(self, op: str) -> str:
        """Returns the line of an op, as `file:line`; empty if unknown."""
        with self._lock:
            return self._find(op)

    def _find(self, op: str) -> str:
        return self._lines.get(op, "")


def _with_called(operations: Iterable[Any]) -> Iterator[Any]:
    from tf_tpu_ext.tpu import _cluster_order, _clusters

    open_ones = list(operations)
    seen = set()
    while open_ones:
        op = open_ones.pop()
        yield op
        for name in _cluster_order.called_functions(op):
            graph = _clusters.function_graph(op.graph, name)
            if graph is not None and id(graph) not in seen:
                seen.add(id(graph))
                open_ones += graph.get_operations()


lines = _Lines()
