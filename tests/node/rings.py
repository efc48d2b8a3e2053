"""Files that an io_uring alone keeps open, which has no descriptor itself: /proc shows neither.

The text of this module is also a part of programs that tests run as other users, who may not
find modules: it needs nothing but what it imports.
"""

import ctypes
import mmap
import os
import struct
from pathlib import Path

_SETUP, _ENTER, _REGISTER = 425, 426, 427
_NO_MMAP = 1 << 14
_REGISTER_FILES, _REGISTER_RING_FDS = 2, 20
_GETEVENTS, _REGISTERED_RING = 1, 1 << 4
_READ, _WRITE, _FIXED_FILE = 22, 23, 1

_libc = ctypes.CDLL(None, use_errno=True)


def _call(number: int, *args: int) -> int:
    found: int = _libc.syscall(number, *(ctypes.c_void_p(each) for each in args))
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


def _address(memory: "mmap.mmap | ctypes.Array[ctypes.c_char]") -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


class Ring:
    """Reads and writes a file past the page cache, and has no descriptor of it, nor of itself."""

    def __init__(self, path: str) -> None:
        self._entries, self._rings, self._data = (mmap.mmap(-1, mmap.PAGESIZE) for _ in range(3))
        shared = ctypes.create_string_buffer(120)
        # Its memory is the process's own: a mapping of the ring would be seen.
        struct.pack_into("=III", shared, 0, 1, 0, _NO_MMAP)
        struct.pack_into("=Q", shared, 72, _address(self._entries))
        struct.pack_into("=Q", shared, 112, _address(self._rings))
        file = os.open(path, os.O_RDWR | os.O_DIRECT)
        ring = _call(_SETUP, 1, _address(shared))
        files = ctypes.create_string_buffer(struct.pack("=i", file), 4)
        _call(_REGISTER, ring, _REGISTER_FILES, _address(files), 1)
        itself = ctypes.create_string_buffer(struct.pack("=IIQ", 2**32 - 1, 0, ring), 16)
        _call(_REGISTER, ring, _REGISTER_RING_FDS, _address(itself), 1)
        (self._index,) = struct.unpack_from("=I", itself)
        os.close(ring)
        os.close(file)
        self._tail, self._array = (struct.unpack_from("=I", shared, at)[0] for at in (44, 64))
        self._head, self._done = (struct.unpack_from("=I", shared, at)[0] for at in (80, 100))

    def read(self, offset: int) -> bytes:
        """Return a page of the file. Raises OSError."""
        return self._data[: self._do(_READ, offset)]

    def write(self, offset: int, data: bytes) -> None:
        """Write a page of the file. Raises OSError."""
        self._data[:] = data
        self._do(_WRITE, offset)

    def _do(self, operation: int, offset: int) -> int:
        entry = (operation, _FIXED_FILE, 0, 0, offset, _address(self._data), len(self._data))
        struct.pack_into("=BBHiQQI", self._entries, 0, *entry)
        struct.pack_into("=I", self._rings, self._array, 0)
        tail = struct.unpack_from("=I", self._rings, self._tail)[0]
        struct.pack_into("=I", self._rings, self._tail, tail + 1)
        _call(_ENTER, self._index, 1, 1, _GETEVENTS | _REGISTERED_RING, 0, 0)
        head = struct.unpack_from("=I", self._rings, self._head)[0]
        place = self._done + 16 * (head % 2)  # there are twice as many answers as requests
        result: int = struct.unpack_from("=i", self._rings, place + 8)[0]
        struct.pack_into("=I", self._rings, self._head, head + 1)
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        return result


def why_not(place: Path) -> str | None:
    """Return why no file can be kept so here; None if it can."""
    probe = place / "probe"
    probe.write_bytes(bytes(mmap.PAGESIZE))
    # In a process of its own, which takes the ring along.
    child = os.fork()
    if child == 0:
        try:
            Ring(str(probe)).read(0)
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or 255)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return f"io_uring keeps no files here: {os.strerror(code)}" if code else None
