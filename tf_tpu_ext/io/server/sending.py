"""Sends the elements of one iteration to the program, in memory that both processes share.

The program passes a socket, and anonymous files: the slots. An element is written into a free slot,
as cc/data/element_layout.h describes, and a message says which. The socket returns the numbers of
slots that are free again.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import struct
from typing import Any

import numpy as np

# As cc/data/pipeline_channel.cc reads it: kind, slot, bytes.
_MESSAGE = struct.Struct("=3q")
_ELEMENT, _END, _ERROR = 1, 2, 3
_SLOT = struct.Struct("=q")
# The same alignment as TensorFlow's own tensors.
_ALIGNMENT = 64


class ReaderGoneError(Exception):
    """Nobody is waiting for these elements any more."""


class Sender:
    """The connection to one reader.

    Args:
        channel: The socket.
        slots: The descriptors of the files. `close` closes them and the socket.
    """

    def __init__(self, channel: socket.socket, slots: list[int]) -> None:
        """Assumes that all slots are free."""
        self.channel = channel
        self._slots = slots
        self._memories = [np.zeros(0, np.uint8)] * len(slots)
        self._free = list(range(len(slots)))

    def send_element(self, arrays: list[Any], types: list[int]) -> None:
        """Waits for a free slot and sends an element.

        Args:
            arrays: Its tensors, as NumPy arrays.
            types: Their dtypes, as TensorFlow's enum values.

        Raises:
            ReaderGoneError: The reader is gone.
        """
        self._send(_ELEMENT, *_laid_out(arrays, types))

    def send_error(self, text: str) -> None:
        """Sends the error that ends the iteration."""
        words = text.encode(errors="replace")
        self._send(_ERROR, [(0, words)], len(words))

    def send_end(self) -> None:
        """Signals that there are no more elements."""
        self._say(_END, 0, 0)

    def finish(self) -> None:
        """Stops sending, which the reader notices even without an end or an error."""
        self.channel.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Closes the socket and the slots."""
        self.channel.close()
        for slot in self._slots:
            os.close(slot)

    def _send(self, kind: int, parts: list[tuple[int, Any]], size: int) -> None:
        slot = self._take_slot()
        memory = self._memory_of(slot, size)
        for begin, part in parts:
            memory[begin : begin + len(part)] = np.frombuffer(part, np.uint8)
        self._say(kind, slot, size)

    def _say(self, kind: int, slot: int, size: int) -> None:
        try:
            self.channel.send(_MESSAGE.pack(kind, slot, size))
        except (BrokenPipeError, ConnectionResetError):
            raise ReaderGoneError from None

    def _take_slot(self) -> int:
        # The latest slot is the one that is still in the processor's cache.
        with contextlib.suppress(BlockingIOError):
            while True:
                self._receive_slot(socket.MSG_DONTWAIT)
        if not self._free:
            # When several elements are sent in a row, each finds the previous one's code and data
            # in the cache. The reader keeps at most half of the slots, and has one more to read
            # in the meantime.
            while len(self._free) < max(1, len(self._slots) // 2 - 1):
                self._receive_slot(0)
        return self._free.pop()

    def _receive_slot(self, flags: int) -> None:
        try:
            message = self.channel.recv(_SLOT.size, flags)
        except ConnectionResetError:
            raise ReaderGoneError from None
        if not message:
            raise ReaderGoneError
        self._free += _SLOT.unpack(message)

    def _memory_of(self, slot: int, size: int) -> Any:
        """Returns a slot's memory, which has at least that size."""
        if size > len(self._memories[slot]):
            # A little more, for elements of varying size, because the reader has to remap it.
            size = -(-(size + size // 8) // mmap.PAGESIZE) * mmap.PAGESIZE
            # If there is no memory, this raises an error, whereas writing would kill the process.
            os.posix_fallocate(self._slots[slot], 0, size)
            self._memories[slot] = np.frombuffer(mmap.mmap(self._slots[slot], size), np.uint8)
        return self._memories[slot]


def _laid_out(arrays: list[Any], types: list[int]) -> tuple[list[tuple[int, Any]], int]:
    """Returns the parts of an element with their offsets in a slot, and the end of the last."""
    header = [len(arrays)]
    parts: list[tuple[int, Any]] = []
    end = 8 * (1 + sum(4 + np.ndim(array) for array in arrays))
    for number, array in enumerate(arrays):
        data = _bytes_of(array)
        begin = -(-end // _ALIGNMENT) * _ALIGNMENT
        end = begin + len(data)
        parts.append((begin, data))
        header += [types[number], begin, len(data), np.ndim(array), *np.shape(array)]
    return [(0, struct.pack(f"={len(header)}q", *header)), *parts], end


def _bytes_of(array: Any) -> Any:
    if isinstance(array, bytes) or array.dtype == object:
        strings = [array] if isinstance(array, bytes) else array.reshape(-1).tolist()
        return struct.pack(f"={len(strings)}q", *map(len, strings)) + b"".join(strings)
    return np.asarray(array).reshape(-1).view(np.uint8)
