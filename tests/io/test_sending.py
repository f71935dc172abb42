"""What the pipeline's process writes into slots, and which it takes."""

from __future__ import annotations

import itertools
import os
import socket
import struct

import numpy as np
import pytest

from tf_tpu_ext.io.server import sending


@pytest.fixture
def ends():
    """A sender with two slots, the reader's end, and the slots' descriptors."""
    theirs, ours = socket.socketpair(type=socket.SOCK_SEQPACKET)
    slots = [os.memfd_create("slot") for _ in range(2)]
    sender = sending.Sender(theirs, list(slots))
    yield sender, ours, slots
    sender.close()
    ours.close()


def test_an_element_is_laid_out(ends):
    sender, reader, slots = ends
    arrays = [np.arange(6, dtype=np.float32).reshape(2, 3), np.array([b"a", b"\0bc"], object)]
    sender.send_element([*arrays, np.zeros((0, 5), bool), np.int64(-3), b"word"], [1, 7, 10, 9, 7])
    kind, slot, size = struct.unpack("=3q", reader.recv(64))
    assert kind == 1
    content = os.pread(slots[slot], 1 << 16, 0)
    words = [int(word) for word in np.frombuffer(content[: 8 * 26], np.int64)]
    assert words[0] == 5
    assert words[1:] == [
        *(1, words[2], 24, 2, 2, 3),
        *(7, words[8], 20, 1, 2),
        *(10, words[13], 0, 2, 0, 5),
        *(9, words[19], 8, 0),
        *(7, words[23], 12, 0),
    ]
    begins = [words[2], words[8], words[13], words[19], words[23]]
    assert all(begin % 64 == 0 for begin in begins)
    assert begins == sorted(begins)
    at = lambda begin, count: content[begin : begin + count]  # noqa: E731
    np.testing.assert_array_equal(np.frombuffer(at(begins[0], 24), np.float32), range(6))
    assert at(begins[1], 20) == struct.pack("=2q", 1, 3) + b"a\0bc"
    assert at(begins[3], 8) == struct.pack("=q", -3)
    assert at(begins[4], 12) == struct.pack("=q", 4) + b"word"
    assert size == begins[4] + 12


def test_a_slot_is_used_again_when_it_is_free(ends):
    sender, reader, _ = ends
    array = np.arange(3.0)
    used = []
    for number in range(6):
        sender.send_element([array], [2])
        used.append(struct.unpack("=3q", reader.recv(64))[1])
        if number:
            reader.send(struct.pack("=q", used[number - 1]))
    assert set(used) == {0, 1}
    assert all(one != other for one, other in itertools.pairwise(used))
    reader.send(struct.pack("=q", used[-1]))
    sender.send_element([array], [2])
    assert struct.unpack("=3q", reader.recv(64))[1] == used[-1]


def test_memory_that_cannot_be_had_is_an_error(ends, monkeypatch):
    sender, _, _ = ends

    def no_memory(file, begin, size):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", no_memory)
    with pytest.raises(OSError, match="No space left"):
        sender.send_element([np.arange(3.0)], [2])


def test_a_reader_that_is_gone(ends):
    sender, reader, _ = ends
    sender.send_error("first")
    sender.send_error("second")
    reader.shutdown(socket.SHUT_RDWR)
    with pytest.raises(sending.ReaderGoneError):
        sender.send_error("third")
    with pytest.raises(sending.ReaderGoneError):
        sender.send_end()
