"""The C interface (src/capi/starlane.h) by ctypes: structs, prototypes, and failures as OSError. ctypes releases the
interpreter's lock during each call, and one wheel serves every Python. Nothing is loaded before `library()` is called."""

from __future__ import annotations

import ctypes as c
import functools
import os
import pathlib

ABI = 1  # SL_ABI that this file speaks


class Options(c.Structure):
    _fields_ = [("size", c.c_uint32), ("threads", c.c_uint32), ("cache_bytes", c.c_uint64), ("dirty_bytes", c.c_uint64),
                ("patience_ms", c.c_uint64), ("purpose", c.c_char_p)]


class Stat(c.Structure):
    _fields_ = [("size", c.c_uint32), ("mode", c.c_uint32), ("ino", c.c_uint64), ("length_bytes", c.c_uint64),
                ("blocks", c.c_uint64), ("nlink", c.c_uint32), ("uid", c.c_uint32), ("gid", c.c_uint32),
                ("reserved", c.c_uint32), ("mtime_seconds", c.c_int64), ("ctime_seconds", c.c_int64),
                ("mtime_nanoseconds", c.c_uint32), ("ctime_nanoseconds", c.c_uint32)]


class Entry(c.Structure):
    _fields_ = [("size", c.c_uint32), ("reserved", c.c_uint32), ("stat", Stat), ("name", c.c_char * 256)]


class Io(c.Structure):
    _fields_ = [("size", c.c_uint32), ("kind", c.c_uint32), ("file", c.c_void_p), ("memory", c.c_void_p),
                ("length_bytes", c.c_uint64), ("offset", c.c_uint64), ("result", c.c_int64)]


class Change(c.Structure):
    _fields_ = [("size", c.c_uint32), ("kind", c.c_uint32), ("stat", Stat)]


class Volume(c.Structure):
    _fields_ = [("size", c.c_uint32), ("sessions", c.c_uint32), ("live_bytes", c.c_uint64), ("inodes", c.c_uint64),
                ("quota_bytes", c.c_uint64), ("quota_inodes", c.c_uint64), ("name", c.c_char * 64),
                ("deleting", c.c_uint32), ("reserved", c.c_uint32)]


class Dataset(c.Structure):
    _fields_ = [("size", c.c_uint32), ("frozen", c.c_uint32), ("files", c.c_uint64), ("directories", c.c_uint64),
                ("bytes", c.c_uint64), ("created_seconds", c.c_int64), ("name", c.c_char * 64),
                ("version", c.c_char * 64), ("digest", c.c_char * 128)]


READ, WRITE = 0, 1
APPEARED, CHANGED, GONE = 1, 2, 3

_pointer = c.c_void_p
_PROTOTYPES: dict[str, tuple[type[c._SimpleCData] | None, tuple[object, ...]]] = {  # type: ignore[type-arg]
    "sl_abi": (c.c_uint32, ()),
    "sl_version": (c.c_char_p, ()),
    "sl_last_error": (c.c_char_p, ()),
    "sl_connect": (c.c_int, (c.c_char_p, c.POINTER(Options), c.POINTER(_pointer))),
    "sl_disconnect": (c.c_int, (_pointer,)),
    "sl_interrupt": (c.c_int, (_pointer,)),
    "sl_open": (c.c_int, (_pointer, c.c_char_p, c.c_int, c.c_uint32, c.POINTER(_pointer))),
    "sl_close": (c.c_int, (_pointer,)),
    "sl_pread": (c.c_int64, (_pointer, _pointer, c.c_uint64, c.c_uint64)),
    "sl_pwrite": (c.c_int64, (_pointer, _pointer, c.c_uint64, c.c_uint64)),
    "sl_fsync": (c.c_int, (_pointer,)),
    "sl_truncate": (c.c_int, (_pointer, c.c_uint64)),
    "sl_fstat": (c.c_int, (_pointer, c.POINTER(Stat))),
    "sl_stat_path": (c.c_int, (_pointer, c.c_char_p, c.POINTER(Stat))),
    "sl_mkdir": (c.c_int, (_pointer, c.c_char_p, c.c_uint32)),
    "sl_rmdir": (c.c_int, (_pointer, c.c_char_p)),
    "sl_unlink": (c.c_int, (_pointer, c.c_char_p)),
    "sl_rename": (c.c_int, (_pointer, c.c_char_p, c.c_char_p)),
    "sl_fsync_directory": (c.c_int, (_pointer, c.c_char_p)),
    "sl_listing_open": (c.c_int, (_pointer, c.c_char_p, c.POINTER(_pointer))),
    "sl_listing_next": (c.c_int, (_pointer, c.POINTER(Entry))),
    "sl_listing_close": (c.c_int, (_pointer,)),
    "sl_batch_new": (c.c_int, (_pointer, c.POINTER(_pointer))),
    "sl_batch_submit": (c.c_int, (_pointer, c.POINTER(Io), c.c_size_t)),
    "sl_batch_fd": (c.c_int, (_pointer,)),
    "sl_batch_wait": (c.c_int, (_pointer, c.c_int)),
    "sl_batch_progress_bytes": (c.c_uint64, (_pointer,)),
    "sl_batch_cancel": (c.c_int, (_pointer,)),
    "sl_batch_free": (c.c_int, (_pointer,)),
    "sl_register": (c.c_int, (_pointer, _pointer, c.c_uint64)),
    "sl_unregister": (c.c_int, (_pointer, _pointer, c.c_uint64)),
    "sl_watch_open": (c.c_int, (_pointer, c.c_char_p, c.c_uint32, c.POINTER(_pointer))),
    "sl_watch_next": (c.c_int, (_pointer, c.c_int, c.POINTER(Change))),
    "sl_watch_close": (c.c_int, (_pointer,)),
    "sl_volume_create": (c.c_int, (_pointer, c.c_char_p, c.c_uint64, c.c_uint64)),
    "sl_volume_delete": (c.c_int, (_pointer, c.c_char_p, c.c_int)),
    "sl_volume_list": (c.c_int, (_pointer, c.POINTER(Volume), c.c_size_t, c.POINTER(c.c_size_t))),
    "sl_dataset_list": (c.c_int, (_pointer, c.POINTER(Dataset), c.c_size_t, c.POINTER(c.c_size_t))),
}


def _places() -> list[pathlib.Path]:
    """Where the library may lie: named by STARLANE_LIBRARY, in the installed package, in a checkout that was built."""
    here = pathlib.Path(__file__).resolve().parent
    named = os.environ.get("STARLANE_LIBRARY")
    if named:
        return [pathlib.Path(named)]
    return [here / "libstarlane.so", here.parent.parent / "build/release/lib/libstarlane.so"]


@functools.lru_cache(maxsize=1)
def library() -> c.CDLL:
    """The library, loaded once. OSError: it is nowhere, or older than this package."""
    places = _places()
    found = next((place for place in places if place.exists()), None)
    if found is None:
        raise OSError(f"libstarlane.so is not at {' nor at '.join(map(str, places))}; `pip install` the package, build the "
                      "target starlane_c, or name the file by STARLANE_LIBRARY")
    loaded = c.CDLL(str(found))
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    if loaded.sl_abi() < ABI:
        raise OSError(f"{found} speaks version {loaded.sl_abi()} of the C interface, this package needs {ABI}")
    return loaded


def checked(answer: int, path: str | None = None) -> int:
    """The answer of a call, or its failure as the OSError of its errno (FileNotFoundError and so on)."""
    if answer < 0:
        text = library().sl_last_error().decode(errors="replace")
        raise OSError(-answer, text or os.strerror(-answer), path) if path else OSError(-answer, text or os.strerror(-answer))
    return answer
