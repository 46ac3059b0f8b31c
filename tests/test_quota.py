"""Quotas: write() itself says that a volume is full, nobody goes beyond, and what is held apart counts apart."""

import concurrent.futures
import itertools
import os
import shutil
import threading
import time

from conftest import Mount, wait_until
from local import outcome

MIB = 1 << 20


def limited(site, *quota: str):
    volume = site.volume()
    site.run("volume", "quota", "work", *quota)
    return volume


def of_volume(site) -> dict:
    return site.json("volume", "show", "work")


def fill(path, piece: int = 64 << 10, most: int = 1 << 40):
    """Writes until that fails; how much was written and what write, then close said."""
    fd, written = os.open(path, os.O_WRONLY | os.O_CREAT), 0
    said = closed = None
    while written < most:
        said = outcome(os.write, fd, os.urandom(piece))
        if said != piece:
            break
        written += piece
    closed = outcome(os.fsync, fd)
    os.close(fd)
    return written, said, closed


def test_write_itself_says_that_the_volume_is_full(site):
    volume = limited(site, "--bytes", "8MiB")
    assert fill(volume / "f") == (8 * MIB, "EDQUOT", None)
    assert (volume / "f").stat().st_size == 8 * MIB
    shown = of_volume(site)
    assert shown["live_bytes"] == 8 * MIB and shown["escrow_bytes"] == 0
    assert fill(volume / "g") == (0, "EDQUOT", None)
    with open(volume / "f", "r+b") as file:  # over data it takes nothing
        for _ in range(3):
            assert file.write(os.urandom(8 * MIB)) == 8 * MIB
            file.flush()
            file.seek(0)
        os.fsync(file.fileno())
    assert outcome(os.truncate, volume / "f", MIB) is None
    assert fill(volume / "g") == (7 * MIB, "EDQUOT", None)
    assert of_volume(site)["live_bytes"] == 8 * MIB
    assert site.fsck()["problems"] == []


def test_what_is_deleted_is_room_at_once_whatever_is_kept(site):
    volume = limited(site, "--bytes", "8MiB")
    site.run("trash", "keep", "work", "1h", "--min-age", "0s")
    for _ in range(3):
        assert fill(volume / "f", most=8 * MIB)[0] == 8 * MIB
        (volume / "f").unlink()
    shown = of_volume(site)
    assert shown["live_bytes"] == 0 and shown["trash_bytes"] == 24 * MIB
    fd = os.open(volume / "open", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"x" * MIB)
    os.fsync(fd)
    assert of_volume(site)["live_bytes"] == MIB
    (volume / "open").unlink()
    assert of_volume(site)["live_bytes"] == 0
    os.close(fd)


def test_inodes(site):
    volume = limited(site, "--inodes", "11")
    for n in range(10):
        (volume / str(n)).touch()
    for call in (lambda: (volume / "more").touch(), lambda: (volume / "more").mkdir(),
                 lambda: os.symlink("x", volume / "more")):
        assert outcome(call) == "EDQUOT"
    os.link(volume / "0", volume / "another name")
    (volume / "1").unlink()
    (volume / "more").touch()
    told = os.statvfs(volume)
    assert told.f_files == 11 and told.f_ffree == 0


def test_statfs_shows_the_quota(site):
    volume = limited(site, "--bytes", "8MiB", "--inodes", "100")
    (volume / "f").write_bytes(b"x" * 3 * MIB)
    told = os.statvfs(volume)
    assert told.f_blocks * told.f_frsize == 8 * MIB
    assert told.f_bavail * told.f_frsize == 5 * MIB
    assert told.f_files == 100 and told.f_ffree == 98
    site.run("volume", "quota", "work", "--bytes", "0")
    assert wait_until(lambda: os.statvfs(volume).f_blocks * told.f_frsize > 8 * MIB)
    assert of_volume(site)["quota_bytes"] == 0 and of_volume(site)["quota_inodes"] == 100


def test_a_quota_below_what_is_there(site):
    volume = site.volume()
    (volume / "f").write_bytes(b"x" * 4 * MIB)
    site.run("volume", "quota", "work", "--bytes", "1MiB")
    time.sleep(4.5)  # a mount asks again whether there is a quota
    assert fill(volume / "g") == (0, "EDQUOT", None)
    assert (volume / "f").read_bytes() == b"x" * 4 * MIB
    (volume / "f").unlink()
    assert fill(volume / "g") == (MIB, "EDQUOT", None)


def test_two_mounts_together_get_it_all_and_not_more(site):
    volume = limited(site, "--bytes", "32MiB")
    with Mount(site) as second:
        written = {}

        def work(directory, name):
            written[name] = fill(directory / name)

        threads = [threading.Thread(target=work, args=(directory, name))
                   for directory in (volume, second) for name in (f"{directory.parent.parent.name}-{n}" for n in range(2))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(said == "EDQUOT" and closed is None for _, said, closed in written.values()), written
        lengths = {name: (volume / name).stat().st_size for name in written}
        assert lengths == {name: told[0] for name, told in written.items()}
        assert 31 * MIB <= sum(lengths.values()) <= 32 * MIB
        # what one has set aside and does not need comes to the other
        shutil.rmtree(volume / "nothing", ignore_errors=True)
        for name in written:
            (volume / name).unlink()
        (second / "a little").write_bytes(b"x")
        assert fill(volume / "rest")[0] >= 31 * MIB
    assert site.fsck()["problems"] == []


def test_a_killed_mount_gives_back_what_was_set_aside(make_site):
    site = make_site(separate=True)
    site.up()
    volume = limited(site, "--bytes", "64MiB")
    second = Mount(site)
    (second.volume / "f").write_bytes(b"x" * MIB)
    second.process.kill()
    second.process.wait()
    second.end()
    wait_until(lambda: of_volume(site)["sessions"] == 1, seconds=60)
    wait_until(lambda: of_volume(site)["escrow_bytes"] == 0, seconds=60)
    assert fill(volume / "g")[0] == 63 * MIB
    assert site.fsck()["problems"] == []


def test_what_fails_for_want_of_room_takes_nothing_with_it(site):
    """Several write one file until it is full: every write that was taken is there."""
    volume = limited(site, "--bytes", "4MiB")
    piece, writers = 24 << 10, 6
    taken = [[] for _ in range(writers)]

    def write(n: int):
        fd, refused = os.open(volume / "f", os.O_RDWR | os.O_CREAT), 0
        for i in itertools.count():
            at, data = (i * writers + n) * piece, os.urandom(piece)
            if outcome(os.pwrite, fd, data, at) == piece:
                taken[n].append((at, data))
            elif (refused := refused + 1) == 10:
                break
        assert outcome(os.fsync, fd) is None
        os.close(fd)

    with concurrent.futures.ThreadPoolExecutor(writers) as pool:
        for done in [pool.submit(write, n) for n in range(writers)]:
            done.result()
    with open(volume / "f", "rb") as file:
        for at, data in sum(taken, []):
            assert os.pread(file.fileno(), piece, at) == data, at
    assert sum(map(len, taken)) * piece <= of_volume(site)["live_bytes"] <= 4 * MIB
    assert site.fsck()["problems"] == []
