"""Two mounts of one site see each other's files: close-to-open, rename into place, unlink while open elsewhere."""

import errno
import os
import threading

import pytest

from conftest import wait_until


def test_a_close_is_seen_by_the_next_open(mounts):
    one, two = mounts
    for n in range(20):
        writer, reader = (one, two) if n % 2 == 0 else (two, one)
        data = os.urandom(1000 + n * 50_000)
        (writer / "f").write_bytes(data)
        assert (reader / "f").read_bytes() == data, n


def test_rename_into_place_is_seen_by_the_next_open(mounts):
    one, two = mounts
    for n in range(15):
        (one / "draft").write_text(f"version {n}")
        os.rename(one / "draft", one / "current")
        assert (two / "current").read_text() == f"version {n}"


def test_growth_and_truncation_are_seen(mounts):
    one, two = mounts
    (one / "f").write_bytes(b"a" * 100)
    assert (two / "f").read_bytes() == b"a" * 100
    with open(one / "f", "ab") as file:
        file.write(b"b" * 4900)
    assert (two / "f").read_bytes() == b"a" * 100 + b"b" * 4900
    os.truncate(one / "f", 10)
    assert (two / "f").read_bytes() == b"a" * 10


def test_a_file_unlinked_elsewhere_stays_readable(mounts):
    one, two = mounts
    data = os.urandom(6 << 20)
    (one / "f").write_bytes(data)
    with open(two / "f", "rb") as file:
        assert file.read(10) == data[:10]
        os.unlink(one / "f")
        file.seek(0)
        assert file.read() == data
    with pytest.raises(FileNotFoundError):
        open(two / "f", "rb")


def test_exclusive_create_has_one_winner(mounts):
    won = []

    def race(directory, tag):
        for n in range(40):
            try:
                os.close(os.open(directory / f"lock{n}", os.O_CREAT | os.O_EXCL))
                won.append((n, tag))
            except OSError as error:
                assert error.errno == errno.EEXIST

    threads = [threading.Thread(target=race, args=(d, t)) for t, d in enumerate(mounts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(n for n, _ in won) == list(range(40))


def test_appends_from_both_lose_nothing(mounts):
    def append(directory, tag):
        with open(directory / "log", "ab", buffering=0) as file:
            for n in range(60):
                file.write(f"{tag}:{n:03}\n".encode())

    (mounts[0] / "log").touch()
    threads = [threading.Thread(target=append, args=(d, t)) for t, d in enumerate(mounts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for directory in mounts:
        lines = (directory / "log").read_text().splitlines()
        assert sorted(lines) == sorted(f"{t}:{n:03}" for t in (0, 1) for n in range(60))


def test_mkdir_and_rmdir_race_leaves_no_orphan(mounts):
    one, two = mounts
    unexpected = []

    def tolerate(call, *numbers):
        try:
            call()
        except OSError as error:
            if error.errno not in numbers:
                unexpected.append(error)

    def maker():
        for n in range(60):
            tolerate((one / "d").mkdir, errno.EEXIST)
            tolerate((one / f"d/f{n}").touch, errno.ENOENT)

    def remover():
        for _ in range(60):
            tolerate(lambda: os.rmdir(two / "d"), errno.ENOENT, errno.ENOTEMPTY)

    threads = [threading.Thread(target=maker), threading.Thread(target=remover)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert unexpected == []
    left = set(os.listdir(one / "d")) if (one / "d").is_dir() else set()
    assert left == (set(os.listdir(two / "d")) if (two / "d").is_dir() else set())
