"""The trash of a volume: what is deleted comes back as it was, or goes when it should, whoever dies meanwhile."""

import hashlib
import os
import random
import shutil
import subprocess
import time

import pytest

from conftest import BINARY, Mount, wait_until
from local import link_followed, outcome

MIB = 1 << 20


def keep(site, name: str = "work", seconds: str = "1h", min_age: str = "0s") -> None:
    site.run("trash", "keep", name, seconds, "--min-age", min_age)


def listed(site, *more) -> dict:
    return {item["path"]: item for item in site.json("trash", "list", "work", *more)}


def of_volume(site) -> dict:
    return site.json("volume", "show", "work")


def snapshot(root) -> dict:
    """All that a restore has to bring back, by path."""
    said = {}
    for path in sorted([root, *root.rglob("*")]):
        told = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        xattrs = {} if path.is_symlink() else {name: os.getxattr(path, name) for name in os.listxattr(path)}
        said[str(path.relative_to(root.parent))] = (
            told.st_mode, told.st_uid, told.st_gid, told.st_nlink,
            told.st_mtime_ns if path.is_file() else None, xattrs,
            hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest() if content else content)
    return said


def make_tree(root, rng, files: int = 40) -> None:
    root.mkdir()
    for n in range(files):
        where = root / f"d{n % 4}" / ("deep" if n % 3 else "")
        where.mkdir(parents=True, exist_ok=True)
        file = where / f"f{n}"
        file.write_bytes(rng.randbytes(rng.choice([0, 10, 5_000, 300_000])))
        os.chmod(file, rng.choice([0o600, 0o755, 0o4711]))
        os.chown(file, n, 2 * n)
        os.utime(file, ns=(n * 10**9, n * 10**9 + 7))
        os.setxattr(file, "user.n", str(n).encode())
    os.setxattr(root / "d1", "user.of a directory", b"kept")
    os.chmod(root / "d1", 0o2751)
    os.symlink("d1/f1", root / "symlink")
    os.mkfifo(root / "fifo")


def test_a_deleted_tree_comes_back_as_it_was(site):
    volume = site.volume()
    keep(site)
    make_tree(volume / "tree", random.Random(1))
    before = snapshot(volume / "tree")
    inodes = of_volume(site)["inodes"]
    shutil.rmtree(volume / "tree")
    assert of_volume(site)["live_bytes"] == 0 and of_volume(site)["inodes"] == 1
    trash = listed(site)
    assert set(trash) == {"tree"}
    assert trash["tree"]["inodes"] == inodes - 1 == of_volume(site)["trash_inodes"]
    assert trash["tree"]["bytes"] == of_volume(site)["trash_bytes"] > 0
    assert site.json("trash", "restore", "work", "/tree/") == {"restored": inodes - 1, "failed": 0}
    assert snapshot(volume / "tree") == before
    assert listed(site) == {} and of_volume(site)["trash_bytes"] == 0
    assert site.fsck()["problems"] == []


def test_what_was_deleted_below_a_directory_that_lives(site):
    volume = site.volume()
    keep(site)
    (volume / "d/e").mkdir(parents=True)
    for name in ("d/a", "d/e/b", "other"):
        (volume / name).write_text(name)
        (volume / name).unlink()
    assert set(listed(site)) == {"d/a", "d/e/b", "other"}
    site.run("trash", "restore", "work", "d")
    assert (volume / "d/a").read_text() == "d/a" and (volume / "d/e/b").read_text() == "d/e/b"
    assert not (volume / "other").exists()
    refused = site.run("trash", "restore", "work", "d", check=False)
    assert refused.returncode == 1 and "nothing in the trash was called d" in refused.stderr


def test_restore_overwrites_nothing_and_takes_the_last(site):
    volume = site.volume()
    keep(site)
    for content in ("first", "second"):
        (volume / "f").write_text(content)
        (volume / "f").unlink()
    (volume / "f").write_text("now")
    refused = site.run("trash", "restore", "work", "f", check=False)
    assert refused.returncode == 1 and "the name is taken" in refused.stderr
    (volume / "old").mkdir()
    site.run("trash", "restore", "work", "f", "--into", "old")
    assert (volume / "old/f").read_text() == "second" and (volume / "f").read_text() == "now"
    first = site.json("trash", "list", "work")[0]
    (volume / "f").unlink()
    site.run("trash", "restore", "work", "--id", str(first["id"]))
    assert (volume / "f").read_text() == "first"


def test_a_tree_goes_back_into_its_successor(site):
    volume = site.volume()
    keep(site)
    (volume / "d").mkdir()
    (volume / "d/kept").write_text("old")
    (volume / "d/both").write_text("old")
    shutil.rmtree(volume / "d")
    (volume / "d").mkdir()
    (volume / "d/both").write_text("new")
    done = site.run("--json", "trash", "restore", "work", "d", check=False)
    assert done.returncode == 1 and '"restored":1' in done.stdout and "d/both" in done.stderr
    assert (volume / "d/kept").read_text() == "old" and (volume / "d/both").read_text() == "new"


def test_what_has_no_directory_any_more(site):
    volume = site.volume()
    keep(site, min_age="1s")
    (volume / "f").write_text("older")
    time.sleep(1.1)
    (volume / "young").mkdir()
    os.rename(volume / "f", volume / "young/f")
    (volume / "young/f").unlink()
    (volume / "young").rmdir()  # lived too short to be kept
    item = site.json("trash", "list", "work")[0]
    assert item["path"] == "?/f"
    site.run("trash", "restore", "work", "--id", str(item["id"]))
    assert (volume / "restored/f").read_text() == "older"


def test_what_does_not_go_to_the_trash(site):
    volume = site.volume()
    (volume / "young").write_text("lived for less than a minute")
    (volume / "young").unlink()
    keep(site)
    (volume / "replaced").write_text("old")
    (volume / "new").write_text("new")
    os.rename(volume / "new", volume / "replaced")
    os.link(volume / "replaced", volume / "second name")
    (volume / "second name").unlink()
    fd = os.open(volume, os.O_TMPFILE | os.O_RDWR)
    os.write(fd, b"never had a name")
    os.close(fd)
    assert listed(site) == {}
    keep(site, seconds="0s")
    (volume / "off").write_text("x")
    (volume / "off").unlink()
    assert listed(site) == {}


def test_its_time_comes_and_space_returns(site):
    volume = site.volume()
    keep(site)
    (volume / "f").write_bytes(os.urandom(8 * MIB))
    (volume / "f").unlink()
    time.sleep(1)
    assert site.json("status")["stored_bytes"] >= 8 * MIB
    assert site.json("status")["usage"]["trash_bytes"] == 8 * MIB
    keep(site, seconds="1s")
    wait_until(lambda: site.json("status")["stored_bytes"] < MIB)
    assert listed(site) == {}
    keep(site)
    (volume / "d").mkdir()
    for n in range(300):
        (volume / f"d/{n}").write_bytes(b"x" * 10_000)
    shutil.rmtree(volume / "d")
    assert site.json("trash", "empty", "work") == {"emptied": 301}
    wait_until(lambda: site.json("status")["stored_bytes"] < MIB)
    assert site.fsck()["problems"] == []


def test_a_deleted_file_behaves_as_posix_says(site):
    volume = site.volume()
    keep(site)
    fd = os.open(volume / "f", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"before")
    (volume / "f").unlink()
    assert os.fstat(fd).st_nlink == 0
    os.write(fd, b" and after")
    assert os.pread(fd, 100, 0) == b"before and after"
    assert outcome(link_followed, f"/proc/self/fd/{fd}", volume / "g") == "ENOENT"
    os.fsync(fd)
    (volume / "d").mkdir()
    directory = os.open(volume / "d", os.O_RDONLY)
    (volume / "d").rmdir()
    assert os.fstat(directory).st_nlink == 0
    assert outcome(os.open, "x", os.O_CREAT | os.O_WRONLY, dir_fd=directory) == "ENOENT"
    assert os.listdir(directory) == []
    site.run("trash", "restore", "work", "f", "d")
    assert os.stat(volume / "f").st_ino == os.fstat(fd).st_ino
    os.write(fd, b", restored")
    os.close(fd)
    os.close(directory)
    assert (volume / "f").read_text() == "before and after, restored"
    (volume / "d/x").write_text("alive")
    assert (volume / "d/x").read_text() == "alive"
    assert site.fsck()["problems"] == []


def test_two_mounts_see_it_come_back(site):
    volume = site.volume()
    keep(site)
    with Mount(site) as second:
        (volume / "d").mkdir()
        (volume / "d/f").write_text("here")
        assert (second / "d/f").read_text() == "here"
        shutil.rmtree(second / "d")
        wait_until(lambda: not (volume / "d").exists())
        site.run("trash", "restore", "work", "d")
        for one in (volume, second):
            assert wait_until(lambda one=one: (one / "d/f").read_text()) == "here"
    assert site.fsck()["problems"] == []


def test_restore_counts_against_the_quota(site):
    site.run("volume", "create", "work", "--quota", "1MiB")
    volume = site.mount / "volumes/work"
    wait_until(volume.is_dir)
    keep(site)
    (volume / "f").write_bytes(b"x" * 700_000)
    (volume / "f").unlink()
    (volume / "g").write_bytes(b"y" * 700_000)  # what is in the trash takes nothing
    refused = site.run("trash", "restore", "work", "f", check=False)
    assert refused.returncode == 1 and set(listed(site)) == {"f"}
    (volume / "g").unlink()
    site.run("trash", "restore", "work", "f")
    assert (volume / "f").read_bytes() == b"x" * 700_000


@pytest.mark.parametrize("separate", [False, True], ids=["one process", "roles apart"])
def test_nothing_is_lost_when_all_is_killed(make_site, separate):
    """kill -9 in the middle of restores and of emptying: each file is in the tree or in the trash, whole."""
    site = make_site(separate=separate)
    site.up()
    volume = site.volume()
    keep(site)
    rng = random.Random(5)
    contents = {f"f{n}": rng.randbytes(rng.choice([100, 20_000])) for n in range(300)}
    (volume / "d").mkdir()
    for name, content in contents.items():
        (volume / "d" / name).write_bytes(content)
    os.sync()
    time.sleep(1.5)
    shutil.rmtree(volume / "d")
    os.sync()
    time.sleep(1.5)
    for pause in (0.02, 0.05):
        command = subprocess.Popen([str(BINARY), "--dir", str(site.dir), "trash", "restore", "work", "d"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(pause)
        site.kill_all()
        command.kill()
        command.wait()
        subprocess.run(["umount", "-l", site.mount], capture_output=True)
        site.up()
        wait_until((site.mount / "volumes/work").is_dir)
        there = {p.name for p in (volume / "d").iterdir()} if (volume / "d").exists() else set()
        kept = {os.path.basename(path) for path in listed(site, "--all")} - {"d"}
        assert there | kept == set(contents) and not there & kept
        assert site.fsck()["problems"] == []
    if listed(site, "--all"):  # the kills came before it was all back
        site.run("trash", "restore", "work", "d")
    assert {p.name: p.read_bytes() for p in (volume / "d").iterdir()} == contents
    shutil.rmtree(volume / "d")
    command = subprocess.Popen([str(BINARY), "--dir", str(site.dir), "trash", "empty", "work"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.02)
    site.kill_all()
    command.kill()
    command.wait()
    subprocess.run(["umount", "-l", site.mount], capture_output=True)
    site.up()
    site.run("trash", "empty", "work")
    wait_until(lambda: site.json("status")["stored_bytes"] == 0, seconds=120)
    assert site.fsck()["problems"] == []


def test_wrong_input_is_told(site):
    site.volume()
    for arguments, text in [(("trash", "list", "nowhere"), "there is no volume named nowhere"),
                            (("trash", "restore", "work"), "say what to restore"),
                            (("trash", "restore", "work", "x"), "nothing in the trash was called x"),
                            (("trash", "restore", "work", "--id", "5"), "nothing in the trash has the id 5"),
                            (("trash", "restore", "work", "x", "--into", "nowhere"), "no such"),
                            (("volume", "quota", "work"), "say what the quota is")]:
        said = site.run(*arguments, check=False)
        assert said.returncode == 1 and text in said.stderr, said.stderr
        assert len(said.stderr.strip().splitlines()) == 1
    for arguments in [("trash", "keep", "work", "soon"), ("trash", "keep", "work", "-1s")]:
        assert site.run(*arguments, check=False).returncode == 2
