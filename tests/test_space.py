"""Where files have data and where holes, what that takes, and what df and du say: compared with ext4 or tmpfs."""

import hashlib
import mmap
import os
import random
import subprocess

import pytest

from conftest import Mount, wait_until
from local import (COLLAPSE_RANGE, INSERT_RANGE, KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE, fallocate, outcome, same_on_both)
from random_files import BASES, Exerciser, Options

MIB = 1 << 20
PAGE = 4096


def seeks(fd: int) -> list:
    """Where data begin and end, as lseek tells."""
    found, at = [], 0
    while isinstance(begin := outcome(os.lseek, fd, at, os.SEEK_DATA), int):
        at = os.lseek(fd, begin, os.SEEK_HOLE)
        found.append((begin, at))
    return found


def test_holes_and_zeros_as_on_a_local_file_system(site, tmp_path):
    def steps(directory):
        said = []
        fd = os.open(directory / "f", os.O_RDWR | os.O_CREAT)
        os.pwrite(fd, b"a" * (64 * PAGE), 0)
        os.fsync(fd)
        for mode, offset, length in [
            (PUNCH_HOLE | KEEP_SIZE, 4 * PAGE, 4 * PAGE),
            (ZERO_RANGE, 16 * PAGE, PAGE),
            (ZERO_RANGE | KEEP_SIZE, 62 * PAGE, 4 * PAGE),
            (ZERO_RANGE, 63 * PAGE, 5 * PAGE),
            (PUNCH_HOLE | KEEP_SIZE, 100, 50),
            (PUNCH_HOLE | KEEP_SIZE, 66 * PAGE, 1 << 40),
            (PUNCH_HOLE, 0, PAGE),
            (PUNCH_HOLE | KEEP_SIZE, 0, 0),
            (0, 0, 80 * PAGE),
            (KEEP_SIZE, 0, 90 * PAGE),
            (0, 0, 0),
        ]:
            said.append(outcome(fallocate, fd, mode, offset, length))
            said.append(os.fstat(fd).st_size)
            said.append(hashlib.sha256(os.pread(fd, 100 * PAGE, 0)).hexdigest())
        os.pwrite(fd, b"over", 5 * PAGE)  # not committed yet when the seeks come
        os.ftruncate(fd, 200 * PAGE)
        os.pwrite(fd, b"b" * PAGE, 150 * PAGE)
        said.append([(b // PAGE, (e + PAGE - 1) // PAGE) for b, e in seeks(fd) if b // PAGE >= 100])
        said += [outcome(os.lseek, fd, at, os.SEEK_HOLE) for at in (200 * PAGE, 1 << 50)]
        said += [outcome(os.lseek, fd, at, os.SEEK_DATA) for at in (151 * PAGE, 1 << 50)]
        os.close(fd)
        return said

    same_on_both(site.volume() / "d", tmp_path / "d", steps)


def test_what_fallocate_does_not_do(site):
    fd = os.open(site.volume() / "f", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"a" * (4 * PAGE), 0)
    for mode in (COLLAPSE_RANGE, INSERT_RANGE, 64):
        assert outcome(fallocate, fd, mode, 0, PAGE) == "ENOTSUP", "the other name of EOPNOTSUPP"
    os.close(fd)
    fd = os.open(site.mount / "volumes/work/f", os.O_RDONLY)
    assert outcome(fallocate, fd, PUNCH_HOLE | KEEP_SIZE, 0, PAGE) == "EBADF"
    os.close(fd)


def test_holes_in_what_is_not_flushed_and_in_maps(site):
    fd = os.open(site.volume() / "f", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 1 << 40)
    os.pwrite(fd, b"x" * 10, 5 << 30)
    assert seeks(fd) == [(5 << 30, (5 << 30) + 10)]
    area = mmap.mmap(fd, 4 * MIB, offset=7 << 30)
    area[2 * MIB] = 1  # in the kernel's page only
    assert seeks(fd) == [(5 << 30, (5 << 30) + 10), ((7 << 30) + 2 * MIB, (7 << 30) + 2 * MIB + PAGE)]
    area[2 * MIB + 1] = 2
    fallocate(fd, PUNCH_HOLE | KEEP_SIZE, (7 << 30) + 2 * MIB, 1)
    assert area[2 * MIB : 2 * MIB + 3] == b"\0\2\0"
    area[:] = b"m" * len(area)
    fallocate(fd, ZERO_RANGE, 7 << 30, 3 * MIB)
    assert bytes(area) == bytes(3 * MIB) + b"m" * MIB
    area.close()
    assert os.pread(fd, 2, (7 << 30) + 3 * MIB - 1) == b"\0m"
    os.close(fd)


def test_sparse_files_of_terabytes(site, tmp_path):
    volume = site.volume()
    fd = os.open(volume / "f", os.O_RDWR | os.O_CREAT)
    places = [0, (64 << 20) - 2, 3 << 40, (1 << 57) + 12_345, (1 << 58) - 6]
    for place in places:
        assert os.pwrite(fd, b"island", place) == 6
    assert [begin for begin, _ in seeks(fd)] == places
    assert os.fstat(fd).st_blocks <= 1 + len(places) * 6 // 512 + 1
    assert outcome(os.pwrite, fd, b"x", 1 << 58) == "EFBIG"
    assert outcome(os.ftruncate, fd, (1 << 58) + 1) == "EFBIG"
    fallocate(fd, PUNCH_HOLE | KEEP_SIZE, 1 << 30, (1 << 57) - (1 << 30))
    assert [begin for begin, _ in seeks(fd)] == [*places[:2], *places[3:]]
    os.ftruncate(fd, 3 << 40)
    os.fsync(fd)
    assert os.fstat(fd).st_blocks == 1
    os.close(fd)
    subprocess.run(["cp", "--sparse=always", volume / "f", tmp_path / "copy"], check=True, timeout=60)
    with open(tmp_path / "copy", "rb") as copy:
        assert copy.read(6) == b"island"
    assert (tmp_path / "copy").stat().st_size == 3 << 40


def stored(site) -> int:
    return site.json("status")["stored_bytes"]


def test_a_hole_gives_its_space_back(site):
    volume = site.volume()
    data = random.Random(1).randbytes(48 * MIB)
    with open(volume / "f", "wb") as file:
        file.write(data)
        os.fsync(file.fileno())
    assert stored(site) >= 48 * MIB
    with open(volume / "f", "r+b") as file:
        fallocate(file.fileno(), PUNCH_HOLE | KEEP_SIZE, MIB, 45 * MIB)
        assert os.fstat(file.fileno()).st_blocks == 3 * MIB // 512
    wait_until(lambda: stored(site) < 10 * MIB)
    expected = data[:MIB] + bytes(45 * MIB) + data[46 * MIB :]
    assert (volume / "f").read_bytes() == expected
    with open(volume / "f", "r+b") as file:
        fallocate(file.fileno(), PUNCH_HOLE | KEEP_SIZE, 0, 48 * MIB)
        assert seeks(file.fileno()) == []
    wait_until(lambda: stored(site) < MIB)
    assert site.fsck()["problems"] == []


def test_a_hole_reaches_who_has_the_file_mapped(make_site):
    """Through the host's cache of large files too, whose copies are mapped past this file system."""
    site = make_site()
    site.up()
    volume = site.volume()
    data = random.Random(2).randbytes(96 * MIB)
    (volume / "f").write_bytes(data)
    with open(volume / "f", "rb") as reader, open(volume / "f", "rb"):
        area = mmap.mmap(reader.fileno(), 0, prot=mmap.PROT_READ)
        assert hashlib.sha256(area).digest() == hashlib.sha256(data).digest()
        with open(volume / "f", "r+b") as writer:
            for mode, offset, length in [(PUNCH_HOLE | KEEP_SIZE, 10 * MIB + 5, 20 * MIB), (ZERO_RANGE, 70 * MIB, 77)]:
                fallocate(writer.fileno(), mode, offset, length)
                data = data[:offset] + bytes(length) + data[offset + length :]
        assert hashlib.sha256(area).digest() == hashlib.sha256(data).digest()
        area.close()
    assert hashlib.sha256((volume / "f").read_bytes()).digest() == hashlib.sha256(data).digest()


def usage(path) -> tuple:
    """Bytes and inodes used and available, as df tells."""
    told = os.statvfs(path)
    return ((told.f_blocks - told.f_bfree) * told.f_frsize, told.f_bavail * told.f_frsize, told.f_files - told.f_ffree)


def test_df_and_du_agree(make_site):
    site = make_site()
    site.up()
    site.run("volume", "create", "work", "--quota", "256MiB")
    volume = site.mount / "volumes/work"
    wait_until(volume.is_dir)
    rng = random.Random(3)
    for n in range(60):
        (volume / f"d{n % 7}").mkdir(exist_ok=True)
        with open(volume / f"d{n % 7}/f{n}", "wb") as file:
            file.write(rng.randbytes(rng.randrange(300_000)))
            file.seek(rng.randrange(1 << 30))
            file.write(b"end")
    os.link(volume / "d0/f0", volume / "link")
    os.symlink("elsewhere", volume / "symlink")
    files = [path for path in volume.rglob("*")]
    inodes = {path.lstat().st_ino: path.lstat().st_blocks * 512 for path in files}
    used, available, number = usage(volume)
    assert number == len(inodes) + 1
    du = int(subprocess.run(["du", "-s", "--block-size=1", volume], capture_output=True, text=True, check=True).stdout.split()[0])
    assert du == sum(inodes.values())
    assert abs(used - du) <= 512 * len(inodes) + 4096, "du counts sectors of each file, df of all"
    assert used + available <= 256 * MIB
    for path in files[::2]:
        if path.is_file():
            path.unlink()
    less, _, fewer = usage(volume)
    assert less < used and fewer < number


def test_a_volume_without_a_quota_shares_what_is_free(make_site):
    site = make_site()
    site.up()
    volume, other = site.volume("one"), site.volume("two")
    (volume / "f").write_bytes(b"x" * (8 * MIB))
    store = os.statvfs(site.dir)
    for path in (volume, other, site.mount, site.mount / "volumes"):
        told = os.statvfs(path)
        assert told.f_bavail > 0
        assert abs(told.f_bavail * told.f_frsize - store.f_bavail * store.f_frsize) < 2 << 30, path
    assert usage(volume)[0] == 8 * MIB and usage(other)[0] == 0
    assert os.statvfs(site.mount).f_blocks * 4096 == pytest.approx(store.f_blocks * store.f_frsize, rel=0.05)
    assert usage(site.mount)[2] == usage(volume)[2] + usage(other)[2]


# ---- Random work, against a model ----


def run_random(request, directories, maps):
    seed = int.from_bytes(os.urandom(4), "little")
    print("seed", seed)
    seconds = request.config.getoption("--random-seconds") / 3
    for base in BASES:
        Exerciser(directories, Options(seed, base, maps)).run(seconds=seconds / len(BASES))


@pytest.mark.parametrize("maps", [False, True], ids=["by the byte", "with maps"])
def test_random_work_on_one_mount(request, make_site, maps):
    site = make_site()
    site.up()
    run_random(request, [site.volume()], maps)
    assert site.fsck()["problems"] == []


def test_random_work_on_two_mounts(request, make_site):
    site = make_site(separate=True)
    site.up()
    volume = site.volume()
    with Mount(site) as second:
        run_random(request, [volume, second], maps=True)
        assert site.fsck()["problems"] == []
