"""Keeps the servers of tf.data service on the loopback interface.

They always ask for all interfaces. TensorFlow's libraries call `bind` by way of an import table,
where this module puts a function that asks for 127.0.0.1 instead.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import pathlib
import socket
import struct
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
_SIGNATURE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, use_errno=True
)
_LISTENS = "0A"
_LOOPBACK_4 = socket.inet_aton("127.0.0.1")
_LOOPBACK_6 = socket.inet_pton(socket.AF_INET6, "::1")
_LOOPBACK_4_IN_6 = socket.inet_pton(socket.AF_INET6, "::ffff:127.0.0.1")
_PT_GNU_RELRO = 0x6474E552


def _bind(handle: int, address: int, length: int) -> int:
    raw = bytearray(ctypes.string_at(address, length))
    (family,) = struct.unpack_from("=H", raw)
    if family == socket.AF_INET:
        raw[4:8] = _LOOPBACK_4
    elif family == socket.AF_INET6:
        # gRPC's sockets of this family serve both kinds of addresses.
        raw[8:24] = _LOOPBACK_4_IN_6
    buffer = (ctypes.c_char * length).from_buffer(raw)
    return int(_LIBC.bind(handle, buffer, length))


# Import tables refer to it as long as the process lives.
_CALLBACK = _SIGNATURE(_bind)


def install() -> None:
    """Replaces `bind` in the import tables of TensorFlow's loaded libraries."""
    bind = ctypes.cast(_LIBC.bind, ctypes.c_void_p).value
    ours = ctypes.cast(_CALLBACK, ctypes.c_void_p).value
    assert bind is not None
    assert ours is not None
    for path, base in _libraries():
        for start, end in _import_tables(path, base):
            _replace(start, end, struct.pack("=Q", bind), struct.pack("=Q", ours))


def check() -> None:
    """Checks that this process listens on the loopback interface only.

    Raises:
        RuntimeError: It listens elsewhere.
    """
    inodes = set()
    for entry in pathlib.Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue  # closed meanwhile
        if target.startswith("socket:["):
            inodes.add(target[len("socket:[") : -1])
    local = {
        _as_listed(socket.AF_INET, _LOOPBACK_4),
        _as_listed(socket.AF_INET6, _LOOPBACK_4_IN_6),
        _as_listed(socket.AF_INET6, _LOOPBACK_6),
    }
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        if not os.path.exists(table):
            continue
        for line in pathlib.Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            address, state, inode = fields[1].split(":")[0], fields[3], fields[9]
            if state == _LISTENS and inode in inodes and address not in local:
                raise RuntimeError(
                    f"The servers of tf.data service listen on {fields[1]} (as in {table}), "
                    "expected the loopback interface only. They have been ended. Report this with "
                    "the versions that `tf-tpu doctor` prints."
                )


def _as_listed(family: int, address: bytes) -> str:
    """Returns an address as /proc/net lists it: words of the machine's byte order."""
    words = len(address) // 4
    return "".join(f"{word:08X}" for word in struct.unpack(f"={words}I", address))


def _libraries() -> list[tuple[str, int]]:
    """Returns the loaded libraries of TensorFlow, with the addresses where they begin."""
    found: dict[str, int] = {}
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and "/tensorflow/" in fields[5] and ".so" in fields[5]:
            begin, offset = int(fields[0].split("-")[0], 16), int(fields[2], 16)
            if offset == 0:
                found.setdefault(fields[5], begin)
    return list(found.items())


def _import_tables(path: str, base: int) -> list[tuple[int, int]]:
    """Returns the ranges of a library that are read-only once its imports are resolved."""
    with open(path, "rb") as file:
        header = file.read(64)
        if header[:5] != b"\x7fELF\x02":
            return []
        (first,) = struct.unpack_from("=Q", header, 32)
        size, count = struct.unpack_from("=HH", header, 54)
        file.seek(first)
        table = file.read(size * count)
    ranges = []
    for entry in range(0, len(table), size):
        kind, _, _, address, _, _, length, _ = struct.unpack_from("=IIQQQQQQ", table, entry)
        if kind == _PT_GNU_RELRO:
            ranges.append((base + address, base + address + length))
    return ranges


def _replace(start: int, end: int, old: bytes, new: bytes) -> None:
    content: Any = ctypes.string_at(start, end - start)
    place = content.find(old)
    while place >= 0:
        address = start + place
        page = address // mmap.PAGESIZE * mmap.PAGESIZE
        _protect(page, mmap.PROT_READ | mmap.PROT_WRITE)
        ctypes.memmove(address, new, len(new))
        _protect(page, mmap.PROT_READ)
        place = content.find(old, place + len(old))


def _protect(page: int, protection: int) -> None:
    if _LIBC.mprotect(ctypes.c_void_p(page), mmap.PAGESIZE, protection) != 0:
        raise OSError(ctypes.get_errno(), "an import table can't be changed")
