"""What a program sees of files: bytes, lengths, times, errno; each checked by another route than the write."""

import errno
import hashlib
import mmap
import os
import random
import stat
import threading

import pytest

MIB = 1 << 20


def fails_with(number, call, *arguments, **more):
    with pytest.raises(OSError) as raised:
        call(*arguments, **more)
    assert raised.value.errno == number, os.strerror(raised.value.errno)


def test_random_reads_and_writes_agree_with_a_local_file(site, tmp_path):
    seed = int.from_bytes(os.urandom(4), "little")
    print("seed", seed)
    rng = random.Random(seed)
    volume = site.volume()
    ours = os.open(volume / "f", os.O_RDWR | os.O_CREAT)
    local = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    for step in range(600):
        offset = rng.choice([rng.randrange(1 << 14), rng.randrange(9 * MIB), 4 * MIB - 7, 64 * MIB - 100])
        length = rng.choice([1, 100, 4096, 5000, 65536, rng.randrange(1, 2 * MIB)])
        action = rng.randrange(10)
        if action < 5:
            data = rng.randbytes(length)
            assert os.pwrite(ours, data, offset) == os.pwrite(local, data, offset) == length
        elif action < 8:
            assert os.pread(ours, length, offset) == os.pread(local, length, offset), step
        elif action == 8:
            cut = rng.randrange(10 * MIB)
            os.ftruncate(ours, cut)
            os.ftruncate(local, cut)
        else:
            os.fsync(ours)
        assert os.fstat(ours).st_size == os.fstat(local).st_size, step
    os.close(ours)
    assert hashlib.sha256((volume / "f").read_bytes()).digest() == hashlib.sha256((tmp_path / "f").read_bytes()).digest()


def test_shared_and_private_maps(site):
    volume = site.volume()
    path = volume / "mapped"
    path.write_bytes(bytes(3 * MIB))
    fd = os.open(path, os.O_RDWR)
    shared = mmap.mmap(fd, 3 * MIB)
    shared[MIB : MIB + 5] = b"hello"
    shared.flush()
    assert path.read_bytes()[MIB : MIB + 5] == b"hello"
    private = mmap.mmap(fd, 3 * MIB, flags=mmap.MAP_PRIVATE)
    private[MIB : MIB + 5] = b"other"
    assert path.read_bytes()[MIB : MIB + 5] == b"hello"
    os.pwrite(fd, b"written", 10)
    assert shared[10:17] == b"written"
    shared.close()
    private.close()
    os.close(fd)


@pytest.mark.parametrize("offset,length", [(0, 4096), (1, 1), (511, 70_001), (4 * MIB - 1, 2), (5 * MIB + 3, 3 * MIB)])
def test_direct_io_of_any_alignment(site, offset, length):
    volume = site.volume()
    data = random.Random(length).randbytes(9 * MIB)
    (volume / "f").write_bytes(data)
    fd = os.open(volume / "f", os.O_RDWR | os.O_DIRECT)
    assert os.pread(fd, length, offset) == data[offset : offset + length]
    os.pwrite(fd, b"D" * length, offset)
    os.close(fd)
    expected = data[:offset] + b"D" * length + data[offset + length :]
    assert (volume / "f").read_bytes() == expected


def test_append_from_several_writers_loses_nothing(site):
    volume = site.volume()

    def append(tag):
        with open(volume / "log", "ab", buffering=0) as file:
            for n in range(200):
                file.write(f"{tag}:{n:04}\n".encode())

    threads = [threading.Thread(target=append, args=(tag,)) for tag in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = (volume / "log").read_text().splitlines()
    assert sorted(lines) == sorted(f"{tag}:{n:04}" for tag in "abcd" for n in range(200))
    for tag in "abcd":
        assert [line for line in lines if line[0] == tag] == [f"{tag}:{n:04}" for n in range(200)]


def test_open_but_unlinked_file_lives_until_closed(site):
    volume = site.volume()
    fd = os.open(volume / "f", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"a" * (5 * MIB))
    os.fsync(fd)
    os.unlink(volume / "f")
    assert os.fstat(fd).st_nlink == 0
    os.pwrite(fd, b"b", 2 * MIB)
    assert os.pread(fd, 3, 2 * MIB - 1) == b"aba"
    fails_with(errno.ENOENT, os.stat, volume / "f")
    os.close(fd)


def test_rename_in_every_way(site):
    volume = site.volume()
    (volume / "a").write_text("a")
    (volume / "b").write_text("b")
    os.rename(volume / "a", volume / "b")
    assert (volume / "b").read_text() == "a"
    (volume / "d1/x").mkdir(parents=True)
    (volume / "d2").mkdir()
    fails_with(errno.EINVAL, os.rename, volume / "d1", volume / "d1/x/y")
    fails_with(errno.ENOTEMPTY, os.rename, volume / "d2", volume / "d1")
    fails_with(errno.ENOTDIR, os.rename, volume / "d2", volume / "b")
    fails_with(errno.EISDIR, os.rename, volume / "b", volume / "d2")
    os.rename(volume / "d1/x", volume / "d2/x")
    assert (volume / "d2").stat().st_nlink == 3 and (volume / "d1").stat().st_nlink == 2
    fails_with(errno.ENOTEMPTY, os.rmdir, volume / "d2")


def test_limits_and_names(site):
    volume = site.volume()
    (volume / ("n" * 255)).touch()
    fails_with(errno.ENAMETOOLONG, os.open, volume / ("n" * 256), os.O_CREAT)
    raw = os.fsencode(volume) + b"/\xff\xfe\x01 \n"
    os.close(os.open(raw, os.O_CREAT | os.O_WRONLY))
    assert b"\xff\xfe\x01 \n" in os.listdir(os.fsencode(volume))
    os.symlink("t" * 4000, volume / "long link")
    assert os.readlink(volume / "long link") == "t" * 4000
    os.mkfifo(volume / "pipe")
    assert stat.S_ISFIFO((volume / "pipe").stat().st_mode)
    with open(volume / "sparse", "wb") as file:
        file.seek(5 << 40)
        file.write(b"end")
    assert (volume / "sparse").stat().st_size == (5 << 40) + 3
    fd = os.open(volume / "sparse", os.O_RDONLY)
    assert os.pread(fd, 10, (5 << 40) - 4) == b"\0\0\0\0end"
    os.close(fd)


def test_extended_attributes(site):
    volume = site.volume()
    path = volume / "f"
    path.touch()
    os.setxattr(path, "user.colour", b"blue")
    os.setxattr(path, "user.big", b"x" * 60_000)
    assert os.getxattr(path, "user.colour") == b"blue"
    assert sorted(os.listxattr(path)) == ["user.big", "user.colour"]
    fails_with(errno.EEXIST, os.setxattr, path, "user.colour", b"", os.XATTR_CREATE)
    fails_with(errno.ENODATA, os.setxattr, path, "user.none", b"", os.XATTR_REPLACE)
    os.removexattr(path, "user.big")
    fails_with(errno.ENODATA, os.getxattr, path, "user.big")


def test_times_and_modes(site):
    volume = site.volume()
    path = volume / "f"
    path.write_text("x")
    os.utime(path, ns=(1_234_567_890_123_456_789, 4_000_000_000_987_654_321))
    found = path.stat()
    assert (found.st_atime_ns, found.st_mtime_ns) == (1_234_567_890_123_456_789, 4_000_000_000_987_654_321)
    os.chmod(path, 0o4711)
    os.chown(path, 3_000_000_000, 77)
    found = path.stat()
    assert (found.st_uid, found.st_gid) == (3_000_000_000, 77)
    assert stat.S_IMODE(found.st_mode) == 0o711, "chown clears setuid"


def test_preallocation(site):
    volume = site.volume()
    fd = os.open(volume / "f", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, 3 * MIB)
    assert os.fstat(fd).st_size == 3 * MIB
    os.pwrite(fd, b"z", MIB)
    assert os.pread(fd, 3, MIB - 1) == b"\0z\0"
    os.close(fd)


def test_copy_file_range_shares_blocks(site):
    volume = site.volume()
    data = os.urandom(24 * MIB)
    (volume / "a").write_bytes(data)
    source, target = os.open(volume / "a", os.O_RDONLY), os.open(volume / "b", os.O_RDWR | os.O_CREAT)
    os.fsync(source)
    before = site.json("status")["stored_bytes"]
    copied = 0
    while copied < len(data):
        copied += os.copy_file_range(source, target, len(data) - copied)
    os.close(source)
    os.close(target)
    assert (volume / "b").read_bytes() == data
    assert site.json("status")["stored_bytes"] - before < MIB
    with open(volume / "a", "r+b") as file:  # neither sees the other's later changes
        file.write(b"changed")
    assert (volume / "b").read_bytes() == data


def test_same_inode_number_everywhere_and_none_twice(site):
    one, two = site.volume("one"), site.volume("two")
    for volume in (one, two):
        (volume / "f").write_text(volume.name)
    assert (one / "f").stat().st_ino != (two / "f").stat().st_ino
    entry = next(e for e in os.scandir(one) if e.name == "f")
    assert entry.inode() == (one / "f").stat().st_ino
    fails_with(errno.EXDEV, os.rename, one / "f", two / "g")
    fails_with(errno.EXDEV, os.link, one / "f", two / "g")
