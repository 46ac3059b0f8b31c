"""Where the bytes of a checkpoint are: a file of the kernel's (a Starlane mount, or any other), or one of a running site by
the C interface (`starlane:///volumes/…`). Any thread; every read is all of it or an error.

Paths under a mount are read through it: a byte is fetched once a host, however many processes load it, and a file that the
host has whole is copied once. The C interface is for hosts without a mount; bench/loading.py compares both."""

from __future__ import annotations

import collections.abc
import ctypes
import errno
import os
from typing import Protocol

from starlane import client as site_client
from starlane.torch._format import FormatError

SCHEME = "starlane://"
Segment = tuple[int, int]  # address, length
_MOST_SEGMENTS = 512  # of one preadv; the kernel takes 1024
_HEAD, _TAIL = 1 << 18, 1 << 20  # what is kept of both ends of a file, where formats have their directories


class Source(Protocol):
    name: str
    length: int

    def read_into(self, offset: int, segments: collections.abc.Sequence[Segment]) -> None:
        """Bytes from offset on, into the segments in turn. FormatError: the file ends before."""

    def close(self) -> None: ...


def _buffer(address: int, length: int) -> memoryview:
    return memoryview((ctypes.c_char * length).from_address(address)).cast("B")


class FileSource:
    """A file of the kernel's."""

    def __init__(self, path: str | os.PathLike[str]):
        self.name = os.fspath(path)
        self._fd = os.open(self.name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.length = os.fstat(self._fd).st_size
            os.lseek(self._fd, 0, os.SEEK_SET)  # a directory is told here
            if os.path.isdir(self.name):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.name)
        except BaseException:
            self.close()
            raise

    def read_into(self, offset: int, segments: collections.abc.Sequence[Segment]) -> None:
        views = [_buffer(address, length) for address, length in segments if length]
        while views:
            some = views[:_MOST_SEGMENTS]
            count = os.preadv(self._fd, some, offset)
            if count == 0:
                raise FormatError(f"{self.name} ends at byte {offset}; it is truncated, or was changed while it was read")
            offset += count
            while views and count >= len(views[0]):
                count -= len(views.pop(0))
            if count:
                views[0] = views[0][count:]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class SiteSource:
    """A file of a running site, without a mount."""

    def __init__(self, path: str):
        self.name = path
        self._client = site_client.shared()
        self._file = self._client.open("/" + path[len(SCHEME):].lstrip("/"))
        self.length = self._file.stat().length

    def read_into(self, offset: int, segments: collections.abc.Sequence[Segment]) -> None:
        for address, length in segments:
            if length and self._file.pread_into(_buffer(address, length), offset) != length:
                raise FormatError(f"{self.name} ends before byte {offset + length}; it is truncated")
            offset += length

    def close(self) -> None:
        self._file.close()


def open_source(path: str | os.PathLike[str]) -> Source:
    """OSError as open(2)."""
    name = os.fspath(path)
    return SiteSource(name) if name.startswith(SCHEME) else FileSource(name)


class Ends:
    """Small reads: from the two ends of the file, which are read once, and from anywhere else by a read of their own."""

    def __init__(self, source: Source):
        self.source = source
        self._head = self._read(0, min(_HEAD, source.length))
        self._tail_at = max(len(self._head), source.length - _TAIL)
        self._tail = self._read(self._tail_at, source.length - self._tail_at)

    def _read(self, offset: int, length: int) -> bytes:
        data = bytearray(length)
        if length:
            self.source.read_into(offset, [(ctypes.addressof(ctypes.c_char.from_buffer(data)), length)])
        return bytes(data)

    def read(self, offset: int, length: int) -> bytes:
        """FormatError: it is not all inside the file."""
        if offset < 0 or length < 0 or offset + length > self.source.length:
            raise FormatError(f"{self.source.name} is damaged: it points to bytes {offset} to {offset + length} of a file of "
                              f"{self.source.length}")
        if offset + length <= len(self._head):
            return self._head[offset:offset + length]
        if offset >= self._tail_at:
            return self._tail[offset - self._tail_at:offset - self._tail_at + length]
        return self._read(offset, length)
