"""`save`: what torch.save writes, bit for bit readable by every torch that reads zip checkpoints, written by many requests at
once straight from the tensors' memory, with checksums computed by other threads meanwhile, and published whole by a rename.

torch's own code pickles; it hands storages to a _Writer in place of its zip writer. The layout is that of torch's writer
(aligned data, descriptors behind it, zip64 where needed), so that torch may compute offsets (calculate_storage_offsets)."""

from __future__ import annotations

import collections.abc
import contextlib
import ctypes
import fnmatch
import functools
import importlib
import os
import pathlib
import pickle
import struct
import threading
import zlib
from typing import Any, Protocol

import torch

from starlane import client as site_client
from starlane.torch._source import SCHEME
from starlane.torch._transfer import THREADS
from starlane.torch._zip import LOCAL, Record
from starlane.torch.report import reporting

_serialization: Any = torch.serialization  # which has no types
_CHUNK = 4 << 20
_SMALL = 256 << 10  # storages up to this are gathered into larger writes
_MOST_PENDING = 512 << 20  # bytes that wait to be written: what torch copied from a device lives until then
_LARGE = 0xFFFFFFFF
_ALIGNMENT = 64
_DESCRIPTOR, _DESCRIPTOR64 = struct.Struct("<4s3I"), struct.Struct("<4sI2Q")
_VERSION = b"3\n"  # of the container, as torch's writer says since 1.6
_FLAGS = 1 << 3  # sizes and checksum follow the data
_DATE = 0x21  # 1980-01-01: files with equal content are equal


class _Sink(Protocol):
    def write(self, data: memoryview, offset: int) -> None: ...
    def publish(self, durable: bool) -> None: ...
    def discard(self) -> None: ...


class _FileSink:
    """A new file beside its final name."""

    def __init__(self, path: str):
        self._final = path
        folder, name = os.path.split(path)
        self._folder = folder or "."
        self._draft = os.path.join(self._folder, f".{name}.{os.getpid()}.{threading.get_ident():x}.part")
        self._fd = os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def write(self, data: memoryview, offset: int) -> None:
        while data:
            count = os.pwrite(self._fd, data, offset)
            data, offset = data[count:], offset + count

    def publish(self, durable: bool) -> None:
        fd, self._fd = self._fd, -1
        try:
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(self._draft, self._final)
        if durable:
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def discard(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        with contextlib.suppress(OSError):
            os.unlink(self._draft)


class _SiteSink:
    """The same in a running site, without a mount."""

    def __init__(self, path: str):
        self._client = site_client.shared()
        self._final = "/" + path[len(SCHEME):].lstrip("/")
        folder, name = os.path.split(self._final)
        self._folder = folder
        self._draft = f"{folder}/.{name}.{os.getpid()}.{threading.get_ident():x}.part"
        self._file: site_client.File | None = self._client.open(self._draft, "x")

    def write(self, data: memoryview, offset: int) -> None:
        assert self._file is not None
        self._file.pwrite(data, offset)

    def publish(self, durable: bool) -> None:
        assert self._file is not None
        file, self._file = self._file, None
        try:
            if durable:
                file.fsync()
        finally:
            file.close()
        self._client.rename(self._draft, self._final)
        if durable:
            self._client.fsync_directory(self._folder)

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            if self._file is not None:
                self._file.close()
            self._client.unlink(self._draft)


def _find_crc() -> collections.abc.Callable[[memoryview, int], int]:
    """zlib's CRC-32; by ISA-L, several times as fast, where its library is (Starlane is built with it)."""
    try:
        function = ctypes.CDLL("libisal.so.2").crc32_gzip_refl
    except (OSError, AttributeError):
        return zlib.crc32
    function.restype, function.argtypes = ctypes.c_uint32, (ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint64)

    def crc(data: memoryview, before: int) -> int:
        if data.readonly or not len(data):
            return zlib.crc32(data, before)
        return int(function(before, ctypes.addressof(ctypes.c_char.from_buffer(data)), len(data)))

    return crc


_crc32 = _find_crc()


class _Workers:
    """A few threads that carry out work in the order given; the first failure is raised where work is added or awaited."""

    def __init__(self, threads: int):
        self._changed = threading.Condition()
        self._queue: list[tuple[collections.abc.Callable[[], None], int]] = []
        self._pending, self._running, self._ended = 0, 0, False
        self._failure: BaseException | None = None
        self._threads = [threading.Thread(target=self._run, name="starlane-save", daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def add(self, work: collections.abc.Callable[[], None], held_bytes: int = 0) -> None:
        with self._changed:
            while self._pending > 0 and self._pending + held_bytes > _MOST_PENDING and not self._failure:
                self._changed.wait()
            if self._failure:
                raise self._failure
            self._pending += held_bytes
            self._queue.append((work, held_bytes))
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._ended:
                    self._changed.wait()
                if not self._queue:
                    return
                work, held = self._queue.pop(0)
                self._running += 1
            failure: BaseException | None = None
            try:
                if not self._failure:
                    work()
            except BaseException as caught:  # told to who waits
                failure = caught
            del work
            with self._changed:
                self._running -= 1
                self._pending -= held
                self._failure = self._failure or failure
                self._changed.notify_all()

    def wait(self) -> None:
        with self._changed:
            while (self._queue or self._running) and not self._failure:
                self._changed.wait()
            if self._failure:
                raise self._failure

    def close(self) -> None:
        """What has not begun is dropped; what runs is waited for."""
        with self._changed:
            self._queue.clear()
            self._ended = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()


class _Entry:
    """A record whose place is settled; crc32 is there when its data has been seen."""

    def __init__(self, name: bytes, size: int, header_at: int):
        self.name, self.size, self.header_at, self.crc32 = name, size, header_at, 0
        self.data_at = Record(name, size, header_at, 0).data_at(_ALIGNMENT)
        self.is_large = size >= _LARGE or header_at >= _LARGE

    @property
    def end(self) -> int:
        if not self.size:
            return self.data_at
        return self.data_at + self.size + (_DESCRIPTOR64 if self.is_large else _DESCRIPTOR).size

    def _zip64(self) -> bytes:
        fields = ([self.size, self.size] if self.size >= _LARGE else []) + ([self.header_at] if self.header_at >= _LARGE else [])
        return struct.pack(f"<2H{len(fields)}Q", 1, 8 * len(fields), *fields) if fields else b""

    def header(self) -> bytes:
        extra = self._zip64()
        padding = self.data_at - self.header_at - LOCAL.size - len(self.name) - len(extra) - 4
        extra += struct.pack("<2sH", b"FB", padding) + b"Z" * padding
        return LOCAL.pack(b"PK\x03\x04", 0, _FLAGS if self.size else 0, 0, 0, _DATE, 0, 0, 0, len(self.name), len(extra)) + \
            self.name + extra

    def descriptor(self) -> bytes:
        if not self.size:
            return b""
        kind = _DESCRIPTOR64 if self.is_large else _DESCRIPTOR
        return kind.pack(b"PK\x07\x08", self.crc32, self.size, self.size)

    def directory(self) -> bytes:
        extra = self._zip64()
        size, at = min(self.size, _LARGE), min(self.header_at, _LARGE)
        return struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 0, 0, _FLAGS if self.size else 0, 0, 0, _DATE, self.crc32, size, size,
                           len(self.name), len(extra), 0, 0, 0, 0, at) + self.name + extra


class _Owning:
    """Work on memory that `owner` keeps: torch drops its copy of a device's storage once it has handed it over."""

    def __init__(self, owner: Any, work: collections.abc.Callable[[], None]):
        self._owner, self._work = owner, work

    def __call__(self) -> None:
        self._work()


class _Writer:
    """What torch.serialization._save asks its zip writer for."""

    def __init__(self, folder: str, sink: _Sink, workers: _Workers, checksum: bool):
        self._folder, self._sink, self._workers, self._checksum = folder, sink, workers, checksum
        self._entries: list[_Entry] = []
        self._at = 0
        self._run, self._run_at = bytearray(), 0
        self._run_entries: list[tuple[_Entry, int]] = []
        self.bytes = self.storages = 0

    def write_record(self, name: str, data: Any, size: int) -> None:
        entry = _Entry(f"{self._folder}/{name}".encode(), size, self._at)
        self._entries.append(entry)
        self._at = entry.end
        if name.startswith("data/"):
            self.storages += 1
            self.bytes += size
        view = _view_of(data, size)
        if size <= _SMALL:
            self._gather(entry, view)
        else:
            self._gather_bytes(entry.header(), entry.header_at)
            self._flush()
            self._write_large(entry, view, data)

    def write_record_metadata(self, name: str, size: int) -> None:
        raise RuntimeError("starlane.torch.save writes data; for a file without it (skip_data) use torch.save")

    def _gather_bytes(self, data: bytes | memoryview, offset: int) -> None:
        if not self._run:
            self._run_at = offset
        self._run += bytes(offset - self._run_at - len(self._run))
        self._run += data

    def _gather(self, entry: _Entry, view: memoryview) -> None:
        self._gather_bytes(entry.header(), entry.header_at)
        self._gather_bytes(view, entry.data_at)
        self._run_entries.append((entry, entry.data_at - self._run_at))
        self._run += bytes(len(entry.descriptor()))
        if len(self._run) >= _CHUNK:
            self._flush()

    def _flush(self) -> None:
        if not self._run:
            return
        data, at, entries = self._run, self._run_at, self._run_entries
        self._run, self._run_entries = bytearray(), []

        def write() -> None:
            view = memoryview(data)
            for entry, begin in entries:
                if self._checksum:
                    entry.crc32 = _crc32(view[begin:begin + entry.size], 0)
                end = begin + entry.size
                view[end:end + len(entry.descriptor())] = entry.descriptor()
            self._sink.write(view, at)

        self._workers.add(write, len(data))

    def _write_large(self, entry: _Entry, view: memoryview, owner: Any) -> None:
        def check() -> None:
            for at in range(0, entry.size, _CHUNK) if self._checksum else ():
                entry.crc32 = _crc32(view[at:at + _CHUNK], entry.crc32)
            self._sink.write(memoryview(entry.descriptor()), entry.data_at + entry.size)

        self._workers.add(_Owning(owner, check))
        for at in range(0, entry.size, _CHUNK):
            write = functools.partial(self._sink.write, view[at:at + _CHUNK], entry.data_at + at)
            self._workers.add(_Owning(owner, write), min(_CHUNK, entry.size - at))

    def finish(self) -> None:
        """The directory, once every checksum is known."""
        self.write_record("version", _VERSION, len(_VERSION))
        self._flush()
        self._workers.wait()
        identity = b"".join(entry.name + entry.crc32.to_bytes(4, "little") for entry in self._entries)
        text = f"{zlib.crc32(identity):020d}{zlib.adler32(identity):020d}".encode()
        self.write_record(".data/serialization_id", text, len(text))
        self._flush()
        self._workers.wait()
        begin = self._at
        raw = b"".join(entry.directory() for entry in self._entries)
        count, end = len(self._entries), begin + len(raw)
        if count >= 0xFFFF or begin >= _LARGE or len(raw) >= _LARGE:
            raw += struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, len(raw), begin)
            raw += struct.pack("<4sIQI", b"PK\x06\x07", 0, end, 1)
        raw += struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, min(count, 0xFFFF), min(count, 0xFFFF), min(end - begin, _LARGE),
                           min(begin, _LARGE), 0)
        for at in range(0, len(raw), _CHUNK):
            self._sink.write(memoryview(raw)[at:at + _CHUNK], begin + at)


def _view_of(data: Any, size: int) -> memoryview:
    if isinstance(data, str):
        data = data.encode()
    if isinstance(data, (bytes, bytearray)):
        return memoryview(data)[:size]
    if not size:
        return memoryview(b"")
    address = data if isinstance(data, int) else data.data_ptr()
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


def _pinned_copies() -> contextlib.AbstractContextManager[Any]:
    """What lies on an accelerator comes through pinned memory, many times as fast, where torch can do it (2.7)."""
    try:
        config: Any = importlib.import_module("torch.utils.serialization.config")
        patched: contextlib.AbstractContextManager[Any] = config.patch("save.use_pinned_memory_for_d2h", True)
        return patched
    except (ImportError, AttributeError):
        return contextlib.nullcontext()


def save(obj: Any, path: str | os.PathLike[str], *, durable: bool = True, checksum: bool = True, threads: int = THREADS,
         pickle_protocol: int = 2) -> None:
    """torch.save(obj, path), in parallel, and published whole: until it is complete (and, if durable, survives the loss of
    power) the old file stays under the name; then the new one is there, on every mount at once. A failed save leaves nothing.

    path: also `starlane:///volumes/…`. checksum: CRC-32 of every record, as zip tools want; torch itself does not read them.
    obj must not change meanwhile. Errors: OSError (EDQUOT, ENOSPC and so on), pickle.PicklingError."""
    name = os.fspath(path)
    with reporting("save", name) as report:
        sink: _Sink = _SiteSink(name) if name.startswith(SCHEME) else _FileSink(name)
        workers = _Workers(threads)
        try:
            writer = _Writer(pathlib.PurePosixPath(name).stem or "archive", sink, workers, checksum)
            with report.phase("pickle"), _pinned_copies():
                _serialization._save(obj, writer, pickle, pickle_protocol, False)
            with report.phase("write"):
                writer.finish()
            with report.phase("publish"):
                sink.publish(durable)
        except BaseException:
            workers.close()
            sink.discard()
            raise
        workers.close()
        report.bytes, report.tensors = writer.bytes, writer.storages


def keep_last(directory: str | os.PathLike[str], count: int, pattern: str = "*.pt") -> list[str]:
    """Removes all but the `count` newest files of a directory (by the time of their last change) whose names match; answers
    what was removed. ValueError: count below 1."""
    if count < 1:
        raise ValueError("keep_last keeps at least one")
    found = [entry for entry in os.scandir(directory)
             if entry.is_file(follow_symlinks=False) and fnmatch.fnmatch(entry.name, pattern) and not entry.name.startswith(".")]
    found.sort(key=lambda entry: (entry.stat().st_mtime_ns, entry.name), reverse=True)
    removed = []
    for entry in found[count:]:
        with contextlib.suppress(FileNotFoundError):  # another rank was first
            os.unlink(entry.path)
        removed.append(entry.path)
    return removed
