"""A running site without a mount: files, names, volumes and data sets by the C interface.

Paths are those of a mount, as `/volumes/work/model.pt`. Offsets and lengths are bytes. Every failure is an OSError with the
errno that src/capi/starlane.h lists for the call. Objects may be used by any thread; after a fork the child has to connect
for itself (ChildProcessError says so). Ctrl-C ends reads and waits. What was not closed is when nobody holds it any more, and
at the end of the process; a failure of that is not told."""

from __future__ import annotations

import collections.abc
import ctypes as c
import dataclasses
import os
import stat as stat_bits
import threading
import types
import weakref
from typing import Any

from starlane import _native

_TICK_MS = 200  # how soon Ctrl-C is noticed
_MODES = {"r": os.O_RDONLY, "r+": os.O_RDWR, "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC, "a": os.O_WRONLY | os.O_CREAT |
          os.O_APPEND, "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL, "w+": os.O_RDWR | os.O_CREAT | os.O_TRUNC}


@dataclasses.dataclass(frozen=True)
class Stat:
    """Attributes of a file. length and blocks (of 512 bytes) are sizes, mtime_ns and ctime_ns nanoseconds since 1970."""

    ino: int
    mode: int
    length: int
    blocks: int
    nlink: int
    uid: int
    gid: int
    mtime_ns: int
    ctime_ns: int

    @property
    def is_dir(self) -> bool:
        return stat_bits.S_ISDIR(self.mode)


@dataclasses.dataclass(frozen=True)
class Volume:
    name: str
    live_bytes: int
    inodes: int
    quota_bytes: int  # 0: none
    quota_inodes: int
    sessions: int
    deleting: bool  # its space is returning


@dataclasses.dataclass(frozen=True)
class Dataset:
    name: str
    version: str
    frozen: bool  # False: it is being published
    files: int
    directories: int
    bytes: int
    created_seconds: int
    digest: str


def _stat_of(raw: _native.Stat) -> Stat:
    return Stat(raw.ino, raw.mode, raw.length_bytes, raw.blocks, raw.nlink, raw.uid, raw.gid,
                raw.mtime_seconds * 10**9 + raw.mtime_nanoseconds, raw.ctime_seconds * 10**9 + raw.ctime_nanoseconds)


def _new_stat() -> _native.Stat:
    return _native.Stat(size=c.sizeof(_native.Stat))


class Client:
    """A connection to the site that `starlane up --dir DIRECTORY` runs.

    directory: by default what STARLANE_DIR says. threads: that serve batches. patience_ms: how long a call waits while a
    server is away, 0: for ever. Errors: FileNotFoundError (no such site), PermissionError (its key cannot be read),
    OSError with ENOTCONN (nobody serves it)."""

    def __init__(self, directory: str | os.PathLike[str] | None = None, *, threads: int = 0, patience_ms: int = 0,
                 purpose: str = "python"):
        where = os.fspath(directory) if directory is not None else os.environ.get("STARLANE_DIR", "")
        if not where:
            raise ValueError("which site? Give its directory, or set STARLANE_DIR")
        self._library = _native.library()
        options = _native.Options(size=c.sizeof(_native.Options), threads=threads, patience_ms=patience_ms,
                                  purpose=purpose.encode())
        self._client = c.c_void_p()
        _native.checked(self._library.sl_connect(os.fsencode(where), c.byref(options), c.byref(self._client)), where)
        self._end = weakref.finalize(self, self._library.sl_disconnect, self._client)

    def close(self) -> None:
        """Commits what was written and ends the session. OSError: EBUSY while files or batches are open."""
        if self._client:
            _native.checked(self._library.sl_disconnect(self._client))
            self._end.detach()
            self._client = c.c_void_p()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, name: str, path: str, *more: Any) -> int:
        return _native.checked(getattr(self._library, name)(self._client, os.fsencode(path), *more), path)

    def open(self, path: str, mode: str = "r", permissions: int = 0o644) -> File:
        """mode: r, r+, w, w+, a, x; always bytes. ValueError: another."""
        flags = _MODES.get(mode.replace("b", ""))
        if flags is None:
            raise ValueError(f"mode is one of {', '.join(_MODES)}, not {mode}")
        handle = c.c_void_p()
        self._call("sl_open", path, flags, permissions, c.byref(handle))
        return File(self, handle, path)

    def stat(self, path: str) -> Stat:
        raw = _new_stat()
        self._call("sl_stat_path", path, c.byref(raw))
        return _stat_of(raw)

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def mkdir(self, path: str, permissions: int = 0o755) -> None:
        self._call("sl_mkdir", path, permissions)

    def rmdir(self, path: str) -> None:
        self._call("sl_rmdir", path)

    def unlink(self, path: str) -> None:
        self._call("sl_unlink", path)

    def rename(self, source: str, target: str) -> None:
        """Replaces target at once, on every mount."""
        self._call("sl_rename", source, os.fsencode(target))

    def fsync_directory(self, path: str) -> None:
        self._call("sl_fsync_directory", path)

    def list(self, path: str) -> collections.abc.Iterator[tuple[str, Stat]]:
        """Names with attributes, without "." and "..", in no promised order."""
        listing = c.c_void_p()
        self._call("sl_listing_open", path, c.byref(listing))
        entry = _native.Entry(size=c.sizeof(_native.Entry))
        try:
            while _native.checked(self._library.sl_listing_next(listing, c.byref(entry)), path) == 1:
                yield os.fsdecode(entry.name), _stat_of(entry.stat)
        finally:
            self._library.sl_listing_close(listing)

    def watch(self, path: str, *, interval_ms: int = 500, timeout_ms: int = -1) -> \
            collections.abc.Iterator[tuple[str, Stat | None]]:
        """("appeared" | "changed" | "gone", attributes) each time the path is not as it was. Looks every interval_ms; ends
        when nothing changed for timeout_ms (-1: never)."""
        watch = c.c_void_p()
        self._call("sl_watch_open", path, interval_ms, c.byref(watch))
        change = _native.Change(size=c.sizeof(_native.Change))
        names = {_native.APPEARED: "appeared", _native.CHANGED: "changed", _native.GONE: "gone"}
        waited = 0
        try:
            while timeout_ms < 0 or waited < timeout_ms:
                tick = _TICK_MS if timeout_ms < 0 else min(_TICK_MS, timeout_ms - waited)
                try:
                    _native.checked(self._library.sl_watch_next(watch, tick, c.byref(change)), path)
                except BlockingIOError:
                    waited += tick
                    continue
                waited = 0
                yield names[change.kind], None if change.kind == _native.GONE else _stat_of(change.stat)
        finally:
            self._library.sl_watch_close(watch)

    def volumes(self) -> collections.abc.Sequence[Volume]:
        return [Volume(one.name.decode(), one.live_bytes, one.inodes, one.quota_bytes, one.quota_inodes, one.sessions,
                       bool(one.deleting))
                for one in self._all("sl_volume_list", _native.Volume)]

    def create_volume(self, name: str, *, quota_bytes: int = 0, quota_inodes: int = 0) -> None:
        self._call("sl_volume_create", name, quota_bytes, quota_inodes)

    def delete_volume(self, name: str, *, force: bool = False) -> None:
        self._call("sl_volume_delete", name, int(force))

    def datasets(self) -> collections.abc.Sequence[Dataset]:
        return [Dataset(one.name.decode(), one.version.decode(), bool(one.frozen), one.files, one.directories, one.bytes,
                        one.created_seconds, one.digest.decode()) for one in self._all("sl_dataset_list", _native.Dataset)]

    def _all(self, name: str, kind: Any) -> Any:
        function = getattr(self._library, name)
        room, count = 64, c.c_size_t()
        while True:
            array = (kind * room)()
            array[0].size = c.sizeof(kind)
            _native.checked(function(self._client, array, room, c.byref(count)))
            if count.value <= room:
                return array[:count.value]
            room = count.value + 16

    def interrupt(self) -> None:
        """Ends the waits of all calls under way, for another thread: they fail with InterruptedError."""
        _native.checked(self._library.sl_interrupt(self._client))

    def batch(self) -> Batch:
        return Batch(self)


class File:
    """An open file; made by Client.open."""

    def __init__(self, client: Client, handle: c.c_void_p, path: str):
        self._client, self._handle, self.path = client, handle, path
        self._library = client._library
        self._end = weakref.finalize(self, self._library.sl_close, handle)

    def pread(self, length: int, offset: int) -> bytes:
        """At most length bytes; fewer at the end of the file only."""
        buffer = bytearray(length)
        return bytes(memoryview(buffer)[:self.pread_into(buffer, offset)]) if length else b""

    def pread_into(self, buffer: Any, offset: int) -> int:
        """Fills a writable buffer of bytes; how many there were."""
        view = memoryview(buffer).cast("B")
        if not len(view):
            return 0
        return _native.checked(self._library.sl_pread(self._handle, c.addressof(c.c_char.from_buffer(view)), len(view), offset),
                               self.path)

    def pwrite(self, data: Any, offset: int) -> int:
        """All of a buffer of bytes."""
        view = memoryview(data).cast("B")
        if not len(view):
            return 0
        if view.readonly:
            memory: Any = (c.c_char * len(view)).from_buffer_copy(view)
            address = c.addressof(memory)
        else:
            address = c.addressof(c.c_char.from_buffer(view))
        return _native.checked(self._library.sl_pwrite(self._handle, address, len(view), offset), self.path)

    def fsync(self) -> None:
        _native.checked(self._library.sl_fsync(self._handle), self.path)

    def truncate(self, length: int) -> None:
        _native.checked(self._library.sl_truncate(self._handle, length), self.path)

    def stat(self) -> Stat:
        raw = _new_stat()
        _native.checked(self._library.sl_fstat(self._handle, c.byref(raw)), self.path)
        return _stat_of(raw)

    def close(self) -> None:
        """Commits what was written; OSError: that failed, or a batch still uses the file (EBUSY)."""
        if self._handle:
            answer = self._library.sl_close(self._handle)
            if answer != -16:  # EBUSY: it is still open
                self._end.detach()
                self._handle = c.c_void_p()
            _native.checked(answer, self.path)

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Batch:
    """Reads and writes under way, straight into and out of memory given by its address. Use as a context: leaving it cancels
    what has not begun and waits for the rest, so that no byte lands in memory that is given away."""

    def __init__(self, client: Client):
        self._client, self._library = client, client._library
        self._batch = c.c_void_p()
        _native.checked(self._library.sl_batch_new(client._client, c.byref(self._batch)))
        self._kept: list[Any] = []
        self._end = weakref.finalize(self, _free, self._library, self._batch, self._kept)

    def submit(self, requests: collections.abc.Sequence[tuple[File, int, int, int]], *, write: bool = False) -> Any:
        """requests: (file, address, length, offset). Returns the array whose `result` fields `wait` completes."""
        if not requests:
            return ()
        array = (_native.Io * len(requests))()
        for io, (file, address, length, offset) in zip(array, requests, strict=True):
            io.size, io.kind = c.sizeof(_native.Io), _native.WRITE if write else _native.READ
            io.file, io.memory, io.length_bytes, io.offset = file._handle, address, length, offset
        _native.checked(self._library.sl_batch_submit(self._batch, array, len(requests)))
        self._kept.append(array)
        return array

    def progress_bytes(self) -> int:
        return int(self._library.sl_batch_progress_bytes(self._batch))

    def wait(self, each_tick: collections.abc.Callable[[], None] | None = None) -> None:
        """Until all is done; the first failure of any is raised. Ctrl-C is heard."""
        while True:
            try:
                _native.checked(self._library.sl_batch_wait(self._batch, _TICK_MS))
                return
            except BlockingIOError:
                if each_tick is not None:
                    each_tick()

    def close(self) -> None:
        self._end()
        self._batch = c.c_void_p()

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: types.TracebackType | None) -> None:
        self.close()


def _free(library: c.CDLL, batch: c.c_void_p, kept: list[Any]) -> None:
    library.sl_batch_free(batch)
    kept.clear()


_sharing = threading.Lock()
_shared: dict[tuple[str, int], Client] = {}


def shared(directory: str | os.PathLike[str] | None = None) -> Client:
    """The process's one client of a site (STARLANE_DIR by default), made when first asked for; each forked child gets its
    own."""
    where = os.fspath(directory) if directory is not None else os.environ.get("STARLANE_DIR", "")
    if not where:
        raise ValueError("a starlane:// path needs to know its site: set STARLANE_DIR to its directory")
    with _sharing:
        key = str(where), os.getpid()
        if key not in _shared:
            _shared[key] = Client(where, purpose="starlane:// in python")
        return _shared[key]
