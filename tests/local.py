"""System calls that Python lacks, and the comparison of a volume with a local file system: the same steps on both must
have the same outcome."""

import ctypes
import errno
import fcntl
import os
import struct

KEEP_SIZE, PUNCH_HOLE, COLLAPSE_RANGE, ZERO_RANGE, INSERT_RANGE = 1, 2, 8, 16, 32
NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4
IMMUTABLE, APPEND_ONLY = 0x10, 0x20
AT_FDCWD, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH = -100, 0x400, 0x1000
GET_FLAGS, SET_FLAGS = 0x80086601, 0x40086602
LIBC = ctypes.CDLL(None, use_errno=True)


def checked(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def fallocate(fd: int, mode: int, offset: int, length: int) -> None:
    checked(LIBC.fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)))


def rename2(old, new, flags: int) -> None:
    checked(LIBC.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags))


def link_descriptor(fd: int, path) -> None:
    """linkat with AT_EMPTY_PATH."""
    checked(LIBC.linkat(fd, b"", AT_FDCWD, os.fsencode(path), AT_EMPTY_PATH))


def link_followed(old, new) -> None:
    """linkat with AT_SYMLINK_FOLLOW: what /proc/self/fd/N points at."""
    checked(LIBC.linkat(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), AT_SYMLINK_FOLLOW))


def get_flags(path) -> int:
    fd = os.open(path, os.O_RDONLY)
    try:
        return struct.unpack("i", fcntl.ioctl(fd, GET_FLAGS, b"\0" * 4))[0] & (IMMUTABLE | APPEND_ONLY)
    finally:
        os.close(fd)


def set_flags(path, flags: int) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        others = struct.unpack("i", fcntl.ioctl(fd, GET_FLAGS, b"\0" * 4))[0] & ~(IMMUTABLE | APPEND_ONLY)
        fcntl.ioctl(fd, SET_FLAGS, struct.pack("i", others | flags))
    finally:
        os.close(fd)


def outcome(call, *arguments, **more):
    """What a call returns, or the name of its errno."""
    try:
        return call(*arguments, **more)
    except OSError as error:
        return errno.errorcode[error.errno]


def same_on_both(volume, local, steps) -> list:
    """steps(directory) on a volume and on a local directory: a list of what happened, the same on both."""
    for directory in (volume, local):
        directory.mkdir(exist_ok=True)
    here, there = steps(volume), steps(local)
    assert len(here) == len(there)
    for number, (ours, theirs) in enumerate(zip(here, there)):
        assert ours == theirs, f"step {number}: {ours} here, {theirs} on a local file system"
    return here
