"""Data sets: published, read-only at the server, shared into volumes without moving bytes, resumable."""

import errno
import hashlib
import os
import pathlib
import signal
import subprocess
import time

import pytest

from conftest import BINARY, wait_until

MIB = 1 << 20


def digest_tree(root: pathlib.Path) -> dict:
    return {str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted(root.rglob("*")) if p.is_file()}


@pytest.fixture
def source(tmp_path):
    root = tmp_path / "set"
    for n in range(30):
        path = root / f"part-{n % 4}" / f"{n}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom((n * 37_777) % 300_000))
    (root / "large.bin").write_bytes(os.urandom(13 * MIB + 5))
    (root / "empty").touch()
    (root / "link").symlink_to("large.bin")
    return root


def published(site, source) -> pathlib.Path:
    site.run("dataset", "publish", str(source), "books", "v1")
    path = site.mount / "public/books/v1"
    wait_until(path.is_dir)
    return path


def test_publish_shows_the_same_tree(site, source):
    path = published(site, source)
    assert digest_tree(path) == digest_tree(source)
    assert os.readlink(path / "link") == "large.bin"
    assert (path / "large.bin").stat().st_mtime_ns == (source / "large.bin").stat().st_mtime_ns
    listed = site.json("dataset", "list")
    assert [(d["name"], d["version"], d["state"], d["files"]) for d in listed] == [("books", "v1", "published", 33)]
    site.run("dataset", "verify", "books", "v1")
    assert site.fsck()["problems"] == []


def test_writes_are_refused(site, source):
    path = published(site, source)
    for call in (lambda: (path / "new").touch(), lambda: (path / "empty").unlink(), lambda: (path / "d").mkdir(),
                 lambda: (path / "large.bin").open("r+b"), lambda: (path / "large.bin").rename(path / "x"),
                 lambda: (path / "large.bin").chmod(0o777), lambda: os.truncate(path / "large.bin", 0)):
        with pytest.raises(OSError) as refused:
            call()
        assert refused.value.errno == errno.EROFS
    for call in (lambda: (site.mount / "public/x").mkdir(), lambda: (site.mount / "volumes/x").mkdir()):
        with pytest.raises(OSError) as refused:
            call()
        assert refused.value.errno == errno.EPERM


def test_copy_into_a_volume_moves_no_bytes_and_pins(site, source):
    path = published(site, source)
    volume = site.volume()
    before = site.json("status")["stored_bytes"]
    subprocess.run(["cp", "-r", path, volume / "copy"], check=True)
    subprocess.run(["sync", "-f", volume / "copy/large.bin"], check=True)
    assert digest_tree(volume / "copy") == digest_tree(source)
    small = sum(p.stat().st_size for p in source.rglob("*.bin") if p.stat().st_size < 4096)
    assert site.json("status")["stored_bytes"] - before <= small + 4096
    refused = site.run("dataset", "delete", "books", "v1", check=False)
    assert refused.returncode == 1 and "volume" in refused.stderr
    subprocess.run(["rm", "-r", volume / "copy"], check=True)
    wait_until(lambda: site.run("dataset", "delete", "books", "v1", check=False).returncode == 0, seconds=90, pause=0.5)
    wait_until(lambda: site.json("status")["stored_bytes"] == 0, seconds=90, pause=0.5)
    assert site.fsck()["problems"] == []


def test_an_interrupted_publish_goes_on(make_site, tmp_path):
    site = make_site(separate=True)
    site.up()
    root = tmp_path / "set"
    root.mkdir()
    for n in range(60):
        (root / f"{n:03}.bin").write_bytes(os.urandom(3 * MIB))
    command = [str(BINARY), "--dir", str(site.dir), "dataset", "publish", str(root), "big", "v1"]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: site.json("status")["stored_bytes"] > 30 * MIB, pause=0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert [d["state"] for d in site.json("dataset", "list")] == ["publishing"]
    time.sleep(0.1)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "went on from an earlier attempt" in done.stdout
    path = site.mount / "public/big/v1"
    wait_until(path.is_dir)
    assert digest_tree(path) == digest_tree(root)
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 1 and "published" in again.stderr
