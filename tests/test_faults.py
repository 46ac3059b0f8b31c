"""Processes are killed and disks lie: what was acknowledged is there, and nothing leaks."""

import hashlib
import os
import pathlib
import random
import signal
import threading
import time

import pytest

from conftest import wait_until

MIB = 1 << 20


class VerifiedWriter(threading.Thread):
    """Writes files whose content follows from their name, and remembers those whose close was acknowledged."""

    def __init__(self, directory: pathlib.Path, number: int):
        super().__init__()
        self.directory, self.number = directory, number
        self.closed, self.errors, self.stop = {}, [], threading.Event()

    @staticmethod
    def content(name: str) -> bytes:
        rng = random.Random(name)
        return rng.randbytes(rng.choice([0, 100, 4096, 5000, 200_000, 5 * MIB]))

    def run(self):
        n = 0
        while not self.stop.is_set():
            name = f"w{self.number}-{n}"
            n += 1
            try:
                (self.directory / name).write_bytes(self.content(name))
                self.closed[name] = True
                if n % 5 == 0:
                    os.rename(self.directory / name, self.directory / (name + ".done"))
                    self.closed[name + ".done"] = self.closed.pop(name)
            except OSError as error:
                self.errors.append(error)
                time.sleep(0.05)


def check(directory: pathlib.Path, closed) -> None:
    for name in closed:
        expected = VerifiedWriter.content(name.removesuffix(".done"))
        path = directory / name
        if not path.exists():  # killed between the rename and its answer
            path = directory / (name + ".done")
        assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(expected).digest(), name


@pytest.mark.parametrize("role", ["meta", "store", "keeper"])
def test_a_killed_server_is_a_pause(make_site, role):
    site = make_site(separate=True)
    site.up()
    directory = site.volume()
    writers = [VerifiedWriter(directory, n) for n in range(3)]
    for writer in writers:
        writer.start()
    for _ in range(4):
        time.sleep(0.4)
        site.kill(role)
    time.sleep(0.5)
    for writer in writers:
        writer.stop.set()
    for writer in writers:
        writer.join(60)
        assert not writer.is_alive() and writer.errors == []
        assert len(writer.closed) > 3
        check(directory, writer.closed)
    assert site.fsck()["problems"] == []


def test_a_store_that_hangs_holds_up_no_metadata(make_site):
    site = make_site(separate=True)
    site.up()
    directory = site.volume()
    store = site.roles()["store"]
    os.kill(store, signal.SIGSTOP)
    try:
        made = []

        def make_directories():
            for n in range(3):
                (directory / f"d{n}").mkdir()
                os.fsync(fd)
                made.append(n)

        fd = os.open(directory, os.O_RDONLY)
        worker = threading.Thread(target=make_directories)
        worker.start()
        worker.join(60)
        assert made == [0, 1, 2]
        os.close(fd)
    finally:
        os.kill(store, signal.SIGCONT)
    (directory / "f").write_bytes(b"afterwards")
    with open(directory / "f", "rb") as file:
        os.fsync(file.fileno())
    assert site.fsck()["problems"] == []


def test_a_killed_mount_keeps_what_close_acknowledged(make_site):
    site = make_site(separate=True)
    site.up()
    directory = site.volume()
    acknowledged = {}
    for _ in range(3):
        writer = VerifiedWriter(directory, len(acknowledged))
        writer.start()
        time.sleep(0.5)
        site.kill("mount")
        writer.stop.set()
        writer.join(60)
        acknowledged.update(writer.closed)
        wait_until(directory.is_dir)
    assert acknowledged
    check(directory, acknowledged)
    assert site.fsck()["problems"] == []


@pytest.mark.parametrize("separate", [False, True], ids=["one process", "roles apart"])
def test_everything_killed_at_once(make_site, separate):
    site = make_site(separate=separate)
    site.up()
    site.volume()
    directory = site.mount / "volumes/work"
    acknowledged = {}
    for round_number in range(3):
        writers = [VerifiedWriter(directory, 10 * round_number + n) for n in range(2)]
        for writer in writers:
            writer.start()
        time.sleep(0.7)
        site.kill_all()
        for writer in writers:
            writer.stop.set()
            writer.join(60)
            acknowledged.update(writer.closed)
        site.up()
        check(directory, acknowledged)
    assert acknowledged
    assert site.fsck()["problems"] == []


def test_nothing_leaks_after_everything_is_deleted(make_site):
    site = make_site(separate=True)
    site.up()
    directory = site.volume()
    for n in range(40):
        (directory / f"f{n}").write_bytes(os.urandom(MIB))
    site.kill("mount")
    wait_until(directory.is_dir)
    for path in directory.iterdir():
        path.unlink()
    wait_until(lambda: site.json("status")["stored_bytes"] == 0, seconds=120, pause=0.5)
    assert site.fsck()["problems"] == []


def test_a_flipped_byte_is_found_and_never_returned(make_site):
    site = make_site()
    site.up()
    directory = site.volume()
    data = os.urandom(8 * MIB)
    (directory / "f").write_bytes(data)
    assert site.down() == 0
    needle = data[5 * MIB : 5 * MIB + 64]
    flipped = 0
    for segment in (site.dir / "store").rglob("*"):
        if segment.is_file() and (at := segment.read_bytes().find(needle)) >= 0:
            with open(segment, "r+b") as file:
                file.seek(at)
                file.write(bytes([needle[0] ^ 1]))
            flipped += 1
    assert flipped == 1
    site.up()
    with open(directory / "f", "rb", buffering=0) as file:
        assert file.read(4 * MIB) == data[: 4 * MIB]
        file.seek(5 * MIB)
        with pytest.raises(OSError):
            file.read(4096)
    assert site.run("fsck", "--verify", check=False).returncode == 1


def test_what_was_fsynced_is_there_after_everything_is_killed(make_site):
    site = make_site(separate=True)
    site.up()
    directory = site.volume()
    fd = os.open(directory / "synced", os.O_RDWR | os.O_CREAT)
    data = os.urandom(3 * MIB)
    os.write(fd, data)
    os.fsync(fd)
    site.kill_all()
    with pytest.raises(OSError):  # its mount is gone; the descriptor is closed all the same
        os.close(fd)
    site.up()
    assert (directory / "synced").read_bytes() == data
