"""Finds the op and the Python line that an instruction comes from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tf_tpu_ext.verdict._hlo import where

# tf2xla's own names, for what goes into and out of a program.
_NO_OPS = frozenset({"", "XLA_Args", "XLA_Retvals"})
_DEEPEST = 6

Place = tuple[str, str]


class Places:
    """The places of a module's instructions: the op, and `file:line` or an empty string.

    Instructions that the compiler creates have no place of their own: fusions, copies, padding.
    They get the place of what they are made from, or made for.
    """

    def __init__(self, module: Any) -> None:
        """Indexes an `HloModuleProto`."""
        self._entry = module.entry_computation_id
        self._computations = {computation.id: computation for computation in module.computations}
        self._instructions = {
            computation.id: {
                instruction.id: instruction for instruction in computation.instructions
            }
            for computation in module.computations
        }
        self._users: dict[int, dict[int, list[Any]]] = {}

    def of(self, computation: Any, instruction: Any) -> Place:
        """Returns the place of an instruction, with its name in place of an unknown op."""
        if instruction.opcode == "parameter" and computation.id == self._entry:
            op, source = self._found(self._of_users(computation, instruction, _DEEPEST))
            number = f"argument {instruction.parameter_number}"
            return (f"{number} of {op}" if op else number, source)
        op, source = self._search(computation, instruction, _DEEPEST)
        return op or instruction.name, source

    def _search(self, computation: Any, instruction: Any, depth: int) -> Place:
        metadata = instruction.metadata
        own = "" if metadata.op_name in _NO_OPS else metadata.op_name
        if (own and metadata.source_file) or depth == 0:
            return own, where(metadata)
        op, source = self._found(self._of_parts(computation, instruction, depth - 1))
        # Its own op takes precedence even if that has no line.
        return (op, source) if source or not own else (own, "")

    def _found(self, places: Iterator[Place]) -> Place:
        """Returns the first place with a line, or else the first with an op."""
        without_line = ""
        for op, source in places:
            if source:
                return op, source
            without_line = without_line or op
        return without_line, ""

    def _of_parts(self, computation: Any, instruction: Any, depth: int) -> Iterator[Place]:
        if instruction.opcode == "fusion":
            for called in instruction.called_computation_ids:
                # The last instructions are closest to the result.
                for part in reversed(self._computations[called].instructions):
                    if part.metadata.op_name not in _NO_OPS:
                        yield part.metadata.op_name, where(part.metadata)
        operands = self._instructions[computation.id]
        for operand in instruction.operand_ids:
            if operands[operand].opcode != "parameter":
                yield self._search(computation, operands[operand], depth)
        yield from self._of_users(computation, instruction, depth)

    def _of_users(self, computation: Any, instruction: Any, depth: int) -> Iterator[Place]:
        for user in self._users_in(computation).get(instruction.id, ()):
            own = user.metadata.op_name
            if own not in _NO_OPS and user.metadata.source_file:
                yield own, where(user.metadata)
            elif depth > 0 and user.opcode != "tuple":
                yield from self._of_users(computation, user, depth - 1)

    def _users_in(self, computation: Any) -> dict[int, list[Any]]:
        users = self._users.get(computation.id)
        if users is None:
            users = self._users[computation.id] = {}
            for user in computation.instructions:
                for operand in user.operand_ids:
                    users.setdefault(operand, []).append(user)
        return users
