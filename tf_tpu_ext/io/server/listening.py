"""Restricts TensorFlow's servers to one of the machine's addresses.

They always ask for all addresses. TensorFlow's libraries call the system's `bind` through their
import tables, where this module puts a function that asks for the one address instead.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import pathlib
import socket
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

LOOPBACK = "127.0.0.1"

_LIBC = ctypes.CDLL(None, use_errno=True)
_SIGNATURE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, use_errno=True
)
_LISTENS = "0A"
# ELF constants: segments, entries in the dynamic segment, and kinds of imports (x86-64, AArch64).
_PT_LOAD, _PT_DYNAMIC, _PT_GNU_RELRO = 1, 2, 0x6474E552
_DT_PLTRELSZ, _DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_RELASZ = 2, 5, 6, 7, 8
_DT_JMPREL, _DT_RELACOUNT = 23, 0x6FFFFFF9
_IMPORTS = (6, 7, 1025, 1026)
_RELOCATION = np.dtype([("place", "<u8"), ("info", "<u8"), ("addend", "<i8")])
_SYMBOL = np.dtype(
    [
        ("name", "<u4"),
        ("info", "u1"),
        ("other", "u1"),
        ("section", "<u2"),
        ("value", "<u8"),
        ("size", "<u8"),
    ]
)


class _Address:
    """An address in the forms that sockets use."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.v4: bytes | None = None
        try:
            self.v4 = socket.inet_pton(socket.AF_INET, text) if "." in text else None
            # A socket that serves both protocols has an IPv6 address.
            self.v6 = socket.inet_pton(socket.AF_INET6, f"::ffff:{text}" if self.v4 else text)
        except OSError:
            raise ValueError(
                f"{text!r} is no address to listen on; expected one like 127.0.0.1 or ::1."
            ) from None

    def means_all(self) -> bool:
        return self.v4 == bytes(4) or self.v6 == bytes(16)


_only = _Address(LOOPBACK)


def _bind(handle: int, address: int, length: int) -> int:
    raw = bytearray(ctypes.string_at(address, length))
    (family,) = struct.unpack_from("=H", raw)
    if family == socket.AF_INET:
        if _only.v4 is None:
            ctypes.set_errno(errno.EADDRNOTAVAIL)
            return -1
        raw[4:8] = _only.v4
    elif family == socket.AF_INET6:
        raw[8:24] = _only.v6
    buffer = (ctypes.c_char * length).from_buffer(raw)
    return int(_LIBC.bind(handle, buffer, length))


# Import tables refer to this as long as the process lives.
_CALLBACK = _SIGNATURE(_bind)


def install(address: str = LOOPBACK) -> None:
    """Restricts TensorFlow's libraries, which must be loaded, to listening on one address.

    Args:
        address: The numeric address; the address of all interfaces changes nothing.

    Raises:
        ValueError: It is not a valid address.
        RuntimeError: No TensorFlow library calls `bind` in a way that can be changed.
    """
    global _only
    _only = _Address(address)
    if _only.means_all():
        return
    ours = ctypes.cast(_CALLBACK, ctypes.c_void_p).value
    assert ours is not None
    replaced = 0
    for path, base in _libraries():
        for slot, read_only in _imports_of_bind(path, base):
            _write(slot, struct.pack("=Q", ours), read_only)
            replaced += 1
    if not replaced:
        raise RuntimeError(
            "TensorFlow's libraries call the system's bind() in a way that tf_tpu_ext does not "
            "know, so its servers would listen on all addresses. Report this with the versions "
            "that `tf-tpu doctor` prints."
        )


def check() -> None:
    """Checks that this process listens only on the address passed to `install`.

    Raises:
        RuntimeError: It listens elsewhere.
    """
    if _only.means_all():
        return
    inodes = set()
    for entry in pathlib.Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue  # closed in the meantime
        if target.startswith("socket:["):
            inodes.add(target[len("socket:[") : -1])
    expected = {_as_listed(form) for form in (_only.v4, _only.v6) if form is not None}
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        if not os.path.exists(table):
            continue
        for line in pathlib.Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            address, state, inode = fields[1].split(":")[0], fields[3], fields[9]
            if state == _LISTENS and inode in inodes and address not in expected:
                raise RuntimeError(
                    f"TensorFlow's server listens on {fields[1]} (as in {table}), expected "
                    f"{_only.text} only. Report this with the versions that `tf-tpu doctor` prints."
                )


def _as_listed(address: bytes) -> str:
    """Returns an address as /proc/net lists it: words in the machine's byte order."""
    words = len(address) // 4
    return "".join(f"{word:08X}" for word in struct.unpack(f"={words}I", address))


def _libraries() -> list[tuple[str, int]]:
    """Returns TensorFlow's loaded libraries, with the addresses where they begin."""
    found: dict[str, int] = {}
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and "/tensorflow/" in fields[5] and ".so" in fields[5]:
            begin, offset = int(fields[0].split("-")[0], 16), int(fields[2], 16)
            if offset == 0:
                found.setdefault(fields[5], begin)
    return list(found.items())


class _Segment(NamedTuple):
    kind: int
    flags: int
    offset: int
    address: int
    physical: int
    file_size: int
    size: int
    alignment: int


class _Library:
    """A file in ELF format, read by the addresses that its tables use."""

    def __init__(self, content: Any) -> None:
        self._content = content
        (first,) = struct.unpack_from("=Q", content, 32)
        size, count = struct.unpack_from("=HH", content, 54)
        self._segments = [
            _Segment(*struct.unpack_from("=IIQQQQQQ", content, first + number * size))
            for number in range(count)
        ]
        self.dynamic: dict[int, int] = {}
        for dynamic in self._of_kind(_PT_DYNAMIC):
            entries = struct.iter_unpack("=qQ", self.read(dynamic.address, dynamic.file_size))
            self.dynamic = dict(entries)

    def _of_kind(self, kind: int) -> Iterator[_Segment]:
        return (segment for segment in self._segments if segment.kind == kind)

    def read(self, address: int, size: int) -> bytes:
        for part in self._of_kind(_PT_LOAD):
            if part.address <= address < part.address + part.file_size:
                start = part.offset + address - part.address
                return bytes(self._content[start : start + size])
        return b""

    def imports_of(self, name: bytes) -> Iterator[int]:
        """Yields the locations of a symbol's imported address."""
        tables = [(self.dynamic.get(_DT_JMPREL, 0), self.dynamic.get(_DT_PLTRELSZ, 0))]
        # Relocations that depend only on where the library is loaded come first.
        skipped = self.dynamic.get(_DT_RELACOUNT, 0) * _RELOCATION.itemsize
        rela, size = self.dynamic.get(_DT_RELA, 0), self.dynamic.get(_DT_RELASZ, 0)
        tables.append((rela + skipped, size - skipped))
        for address, length in tables:
            entries = np.frombuffer(self.read(address, length), _RELOCATION)
            entries = entries[np.isin(entries["info"] & 0xFFFFFFFF, _IMPORTS)]
            symbols = entries["info"] >> 32
            yield from entries["place"][np.isin(symbols, self._named(symbols, name))].tolist()

    def _named(self, symbols: Any, name: bytes) -> list[int]:
        """Returns those of the symbols that have this name and are defined in other libraries."""
        distinct = np.unique(symbols)
        count = int(distinct[-1]) + 1 if len(distinct) else 0
        table = np.frombuffer(
            self.read(self.dynamic[_DT_SYMTAB], count * _SYMBOL.itemsize), _SYMBOL
        )
        undefined = distinct[table["section"][distinct] == 0]
        places = self.dynamic[_DT_STRTAB] + table["name"][undefined].astype(int)
        expected = name + b"\0"
        return [
            symbol
            for symbol, place in zip(undefined.tolist(), places.tolist(), strict=True)
            if self.read(place, len(expected)) == expected
        ]

    def is_read_only(self, address: int) -> bool:
        """Returns whether the linker makes the location read-only after writing to it."""
        relro = self._of_kind(_PT_GNU_RELRO)
        return any(part.address <= address < part.address + part.size for part in relro)


def _imports_of_bind(path: str, base: int) -> Iterator[tuple[int, bool]]:
    """Yields where a loaded library stores the address of `bind`, and whether it is read-only."""
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        if content[:5] != b"\x7fELF\x02":
            return
        library = _Library(content)
        for place in library.imports_of(b"bind"):
            yield base + place, library.is_read_only(place)


def _write(address: int, value: bytes, read_only: bool) -> None:
    page = address // mmap.PAGESIZE * mmap.PAGESIZE
    if read_only:
        _protect(page, mmap.PROT_READ | mmap.PROT_WRITE)
    ctypes.memmove(address, value, len(value))
    if read_only:
        _protect(page, mmap.PROT_READ)


def _protect(page: int, protection: int) -> None:
    if _LIBC.mprotect(ctypes.c_void_p(page), mmap.PAGESIZE, protection) != 0:
        raise OSError(ctypes.get_errno(), "an import table can't be changed")
