"""What an operator does: roles by hand over TCP, bind mounts, several targets, a full disk, an unmount from outside."""

import errno
import os
import pathlib
import socket
import subprocess

import pytest

from conftest import BINARY, wait_until

MIB = 1 << 20


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Processes:
    """Roles started by hand; all are stopped at the end."""

    def __init__(self):
        self.running = []

    def start(self, *arguments) -> subprocess.Popen:
        process = subprocess.Popen([str(BINARY), *map(str, arguments)], stdout=subprocess.PIPE, text=True)
        self.running.append(process)
        line = process.stdout.readline()
        assert line.startswith("ready"), line
        return process

    def stop(self):
        for process in reversed(self.running):
            process.terminate()
            assert process.wait(60) == 0


@pytest.fixture
def processes():
    some = Processes()
    yield some
    some.stop()


def test_roles_by_hand_over_tcp(tmp_path, processes):
    meta, store = f"tcp:127.0.0.1:{free_port()}", f"tcp:127.0.0.1:{free_port()}"
    there = ("--meta", meta, "--key", tmp_path / "one/key")
    processes.start("meta", "--dir", tmp_path / "one", "--meta-listen", meta)
    processes.start("store", "--dir", tmp_path / "two", *there, "--store-listen", store)
    (tmp_path / "mnt").mkdir()
    mount = processes.start("mount", tmp_path / "mnt", *there)
    subprocess.run([BINARY, "--meta", meta, "--key", tmp_path / "one/key", "volume", "create", "work"], check=True)
    volume = tmp_path / "mnt/volumes/work"
    wait_until(volume.is_dir)
    data = os.urandom(9 * MIB)
    (volume / "f").write_bytes(data)
    mount.terminate()
    assert mount.wait(60) == 0
    processes.running.remove(mount)
    processes.start("mount", tmp_path / "mnt", *there)
    assert (volume / "f").read_bytes() == data
    refused = subprocess.run([BINARY, "status", "--meta", meta], capture_output=True, text=True)
    assert refused.returncode == 1 and "--key" in refused.stderr
    (tmp_path / "wrong").write_text("0" * 64 + "\n")
    (tmp_path / "wrong").chmod(0o600)
    refused = subprocess.run([BINARY, "status", "--meta", meta, "--key", tmp_path / "wrong"], capture_output=True, text=True)
    assert refused.returncode == 1 and len(refused.stderr.splitlines()) == 1


def test_binds_show_a_volume_elsewhere(make_site, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("bind mounts need root")
    site = make_site()
    site.up()
    (site.volume() / "f").write_text("here")
    assert site.down() == 0
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    site.up("--bind", f"volumes/work={workspace}")
    assert (workspace / "f").read_text() == "here"
    (workspace / "g").write_text("there")
    assert (site.mount / "volumes/work/g").read_text() == "there"
    assert site.down() == 0
    assert list(workspace.iterdir()) == []


def test_several_targets_share_the_data(make_site, tmp_path):
    site = make_site(options=("--store-dir", str(tmp_path / "a"), "--store-dir", str(tmp_path / "b")))
    site.up()
    volume = site.volume()
    data = os.urandom(64 * MIB)
    (volume / "f").write_bytes(data)
    targets = wait_until(lambda: [t["stored_bytes"] for t in site.json("status")["targets"]])
    assert len(targets) == 2 and sum(targets) == len(data) and min(targets) > 8 * MIB
    assert site.down() == 0
    site.up()
    assert (volume / "f").read_bytes() == data


@pytest.fixture
def small_site(make_site):
    """A site whose store has a disk of 192 MiB."""
    if os.geteuid() != 0:
        pytest.skip("a small file system needs root")
    site = make_site()
    small = site.directory / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=192m", "none", str(small)], check=True)
    try:
        site.options = ["--store-dir", str(small / "store")]
        site.up()
        yield site
    finally:
        subprocess.run(["umount", "-l", str(small)], check=False)


def test_a_full_disk_is_enospc_and_deletes_still_work(small_site):
    site = small_site
    volume = site.volume()
    written = []
    with pytest.raises(OSError) as full:
        for n in range(100):
            (volume / f"f{n}").write_bytes(os.urandom(4 * MIB))
            written.append(n)
    assert full.value.errno == errno.ENOSPC
    assert len(written) > 10
    contents = {n: (volume / f"f{n}").read_bytes() for n in written}
    assert all(len(data) == 4 * MIB for data in contents.values())
    for path in list(volume.iterdir()):
        path.unlink()
    wait_until(lambda: site.json("status")["stored_bytes"] == 0, seconds=120, pause=0.3)
    (volume / "again").write_bytes(contents[written[0]])
    assert (volume / "again").read_bytes() == contents[written[0]]
    assert site.fsck()["problems"] == []
    assert site.down() == 0


def test_a_disk_full_of_trash_takes_new_files(small_site):
    site = small_site
    volume = site.volume()
    site.run("trash", "keep", "work", "1d", "--min-age", "0s")
    for n in range(60):  # twice what the disk holds
        data = os.urandom(6 * MIB)
        (volume / "f").write_bytes(data)
        assert (volume / "f").read_bytes() == data, n
        (volume / "f").unlink()
    assert 0 < site.json("volume", "show", "work")["trash_inodes"] < 40
    newest = max(site.json("trash", "list", "work"), key=lambda item: item["deleted"])
    site.run("trash", "restore", "work", "--id", str(newest["id"]))
    assert (volume / "f").read_bytes() == data, "the oldest went, the newest is there"
    assert site.fsck()["problems"] == []
    assert site.down() == 0


def test_an_unmount_from_outside_ends_it_well(make_site):
    site = make_site()
    site.up()
    (site.volume() / "f").write_text("kept")
    site.run("umount", str(site.mount))
    assert site.process.wait(60) == 0
    site.up()
    assert (site.mount / "volumes/work/f").read_text() == "kept"
    with open(site.mount / "volumes/work/f"):
        busy = site.run("umount", str(site.mount), check=False)
        assert busy.returncode == 1 and "in use" in busy.stderr
