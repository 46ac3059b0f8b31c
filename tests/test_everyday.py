"""Everyday software works on a volume as it does on a local disk."""

import hashlib
import os
import pathlib
import random
import shutil
import sqlite3
import subprocess
import sys

import pytest


def sh(command: str, cwd: pathlib.Path, timeout: float = 300) -> str:
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=cwd, capture_output=True, text=True,
                          timeout=timeout)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def tree_of(root: pathlib.Path) -> dict:
    """Every path with its type, mode, size and content: what a copy must preserve."""
    found = {}
    for directory, names, files in os.walk(root):
        for name in names + files:
            path = pathlib.Path(directory) / name
            stat = path.lstat()
            key = str(path.relative_to(root))
            if path.is_symlink():
                found[key] = ("link", os.readlink(path))
            elif path.is_dir():
                found[key] = ("directory", stat.st_mode)
            else:
                found[key] = ("file", stat.st_mode, hashlib.sha256(path.read_bytes()).hexdigest())
    return found


@pytest.fixture
def sources(tmp_path):
    """A small tree with all that archives trip over."""
    rng = random.Random(20241130)
    root = tmp_path / "tree"
    for n in range(12):
        directory = root / f"d{n % 3}" / f"sub {n}"
        directory.mkdir(parents=True, exist_ok=True)
        for size in (0, 1, 4096, 4097, 70_000, 300_001):
            (directory / f"f{size}-ü").write_bytes(rng.randbytes(size))
    (root / "big").write_bytes(rng.randbytes(9 << 20))
    (root / "link").symlink_to("d0/sub 0/f1-ü")
    (root / "dangling").symlink_to("nowhere")
    os.link(root / "big", root / "big2")
    (root / "d1").chmod(0o750)
    (root / "big").chmod(0o640)
    return root


def test_git_clone_commit_and_gc(site, tmp_path):
    volume = site.volume()
    source = tmp_path / "repo"
    sh(f"git init -q {source} && cd {source} && for i in $(seq 200); do echo line $i > f$i; done && "
       "git add -A && git -c user.name=a -c user.email=a@b commit -qm one && "
       "for i in $(seq 20); do echo more >> f$i; git -c user.name=a -c user.email=a@b commit -qam c$i; done", tmp_path)
    sh(f"git clone -q file://{source} clone", volume)
    clone = volume / "clone"
    sh("git gc -q --aggressive --prune=now && git fsck --strict", clone)
    sh("echo changed > f1 && git -c user.name=a -c user.email=a@b commit -qam x && git status --porcelain", clone)
    assert sh("git log --oneline | wc -l", clone).strip() == "22"
    assert sh("git status --porcelain", clone) == ""


def test_sqlite_with_wal(site):
    volume = site.volume()
    database = volume / "data.db"
    connection = sqlite3.connect(database)
    assert connection.execute("pragma journal_mode=wal").fetchone() == ("wal",)
    connection.execute("create table t (k integer primary key, v text)")
    for start in range(0, 5000, 500):
        with connection:
            connection.executemany("insert into t values (?, ?)", [(i, "v" * (i % 97)) for i in range(start, start + 500)])
    reader = sqlite3.connect(database)
    assert reader.execute("select count(*), sum(length(v)) from t").fetchone() == (5000, sum(i % 97 for i in range(5000)))
    connection.execute("pragma wal_checkpoint(truncate)")
    assert reader.execute("pragma integrity_check").fetchone() == ("ok",)
    connection.close()
    reader.close()


def test_tar_rsync_and_cp_bring_the_same_tree(site, sources):
    volume = site.volume()
    sh(f"tar -C {sources.parent} -cf - tree | tar -xf - -C {volume}", volume)
    sh(f"rsync -aH {sources}/ {volume}/rsynced/", volume)
    sh(f"cp -a {sources} {volume}/copied", volume)
    expected = tree_of(sources)
    for name in ("tree", "rsynced", "copied"):
        assert tree_of(volume / name) == expected, name
        assert (volume / name / "big").stat().st_nlink == 2
    assert sh("rsync -aHn --itemize-changes tree/ rsynced/", volume).strip() == ""
    sh("cp -a copied again && diff -r --no-dereference copied again", volume)
    sh("tar -cf all.tar tree && tar -df all.tar", volume)


def test_pip_installs_a_large_package(site):
    volume = site.volume()
    sh(f"{sys.executable} -m venv env", volume)
    sh("env/bin/pip install -q --disable-pip-version-check --no-compile numpy", volume)
    assert sh("env/bin/python -c 'import numpy; print(int(numpy.arange(10).sum()))'", volume).strip() == "45"


def test_remove_a_directory_of_many_files(site):
    volume = site.volume()
    directory = volume / "many"
    directory.mkdir()
    for n in range(3000):
        (directory / f"file-{n:05}").touch()
    assert len(os.listdir(directory)) == 3000
    shutil.rmtree(directory)
    assert os.listdir(volume) == []


@pytest.mark.slow
def test_remove_a_directory_of_100_000_files(site):
    volume = site.volume()
    sh("mkdir many && cd many && seq 100000 | xargs touch", volume, timeout=900)
    assert sh("ls -f many | wc -l", volume).strip() == "100002"
    sh("rm -rf many", volume, timeout=900)
    assert os.listdir(volume) == []
    assert site.fsck()["problems"] == []


def test_usage_is_exact_and_returns(site):
    volume = site.volume()
    (volume / "a").write_bytes(b"x" * 1_000_000)
    (volume / "b").write_bytes(b"y" * 500)
    (volume / "d").mkdir()
    assert int(sh("du -sb --apparent-size a b | awk '{s+=$1} END {print s}'", volume)) == 1_000_500
    shown = site.json("volume", "show", "work")
    assert shown["live_bytes"] == 1_000_500
    assert shown["inodes"] == 4  # the root too
    os.unlink(volume / "a")
    assert site.json("volume", "show", "work")["live_bytes"] == 500
