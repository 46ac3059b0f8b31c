"""A published version that the kernel serves by itself: the same tree as was published, without the daemon where the kernel
has what it needs, and with the next daemon where it has not."""

import errno
import hashlib
import os
import pathlib
import random
import signal
import subprocess
import tempfile
import threading

import pytest

from conftest import wait_until
from test_acls import AS_NOBODY
from test_holder import daemon_of


@pytest.fixture(params=[(), ("--no-passthrough",)], ids=["passthrough", "plain"])
def one_site(request, make_site):
    """With passthrough some kernels mount from loop devices only; without it, from the files themselves."""
    site = make_site(options=request.param)
    site.up()
    return site


@pytest.fixture
def source(tmp_path):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    root = tmp_path / "set"
    (root / "empty directory").mkdir(parents=True)
    for n in range(400):
        path = root / rng.choice(["a", "b/c", "b/ü"]) / ("n" * rng.randrange(1, 120) + str(n))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rng.randbytes(rng.choice([0, 1, 4095, 4096, 4097, rng.randrange(200_000)])))
        path.chmod(rng.choice([0o644, 0o600, 0o4755, 0o2750]))
        os.chown(path, rng.choice([0, 7, 3_000_000_000]), rng.choice([0, 9]))
        os.utime(path, ns=(0, rng.choice([0, 1_700_000_000_123_456_789, 7_258_118_400_000_000_001])))
    (root / "many").mkdir()
    for n in range(2500):
        (root / "many" / f"{n:05}").write_text(str(n))
    with open(root / "holes", "wb") as file:
        file.truncate(5_000_000)
        os.pwrite(file.fileno(), b"x" * 5000, 3_000_001)
    for n in (1, 59, 1000, 2000, 4000):
        (root / f"link{n}").symlink_to("t" * n)
    os.setxattr(root / "holes", "user.note", rng.randbytes(3000))
    subprocess.run(["setfacl", "-m", "u:7:r,g:9:rw,m::r", root / "holes"], check=True)
    subprocess.run(["setfacl", "-d", "-m", "u:8:rwx", root / "b"], check=True)
    return root


@pytest.fixture
def where():
    path = pathlib.Path(tempfile.mkdtemp(prefix="starlane-tree-"))
    path.chmod(0o755)
    yield path
    subprocess.run(["umount", "-l", path], capture_output=True)
    path.rmdir()


def mounted(site, source, where) -> pathlib.Path:
    os.chmod(site.directory, 0o755)
    site.run("dataset", "publish", str(source), "books", "v1")
    version = site.mount / "public/books/v1"
    site.run("dataset", "mount", str(version), str(where))
    return version


def files_in(root: pathlib.Path) -> list[pathlib.Path]:
    return [path for path in root.rglob("*") if not path.is_symlink() and path.is_file()]


def told(root: pathlib.Path) -> str:
    """All that find, getfacl and getfattr say below a directory, and what the files hold."""
    script = r"""find . -mindepth 1 ! -type d -printf '%p %y %m %n %U %G %s %T@ %l\n' | sort
        find . -mindepth 1 -type d -printf '%p %m %U %G %T@\n' | sort
        find . -mindepth 1 ! -type l -print0 | sort -z | xargs -0 getfacl -n -p
        getfattr -d holes; find . -type f -print0 | sort -z | xargs -0 sha256sum"""
    return subprocess.run(["sh", "-ec", script], cwd=root, check=True, capture_output=True, text=True).stdout


def test_it_is_the_tree_that_was_published(one_site, source, where):
    version = mounted(one_site, source, where)
    expected = told(source)
    assert told(where) == expected
    assert told(version) == expected  # and so is the one under public/
    assert sorted(os.listdir(version.parent)) == ["v1"]
    one_site.run("dataset", "umount", str(where))
    assert os.listdir(where) == []
    one_site.run("dataset", "verify", "books", "v1")
    assert one_site.fsck()["problems"] == []


def test_what_the_kernel_has_needs_no_daemon(one_site, source, where):
    mounted(one_site, source, where)
    expected = told(where)
    daemon = daemon_of(one_site)
    os.kill(daemon, signal.SIGSTOP)
    try:
        assert told(where) == expected
    finally:
        os.kill(daemon, signal.SIGCONT)


def test_a_killed_daemon_is_a_pause(one_site, source, where):
    mounted(one_site, source, where)
    expected = {path.relative_to(source): hashlib.sha256(path.read_bytes()).digest() for path in files_in(source)}
    wrong, done = [], threading.Event()

    def read_on():
        while not done.is_set() and not wrong:
            for name, digest in expected.items():
                with open(where / name, "rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                    if hashlib.sha256(file.read()).digest() != digest:
                        wrong.append(name)

    reader = threading.Thread(target=read_on)
    reader.start()
    for _ in range(3):
        killed = daemon_of(one_site)
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda killed=killed: daemon_of(one_site) != killed)
    done.set()
    reader.join()
    assert wrong == []


def test_it_is_read_only_and_modes_hold(site, source, where):
    version = mounted(site, source, where)
    for call in (lambda: (where / "new").touch(), lambda: (where / "holes").unlink(),
                 lambda: (where / "holes").open("r+b"), lambda: (where / "holes").chmod(0o777)):
        with pytest.raises(OSError) as refused:
            call()
        assert refused.value.errno == errno.EROFS
    secret = next(path for path in files_in(where) if path.stat().st_mode & 0o777 == 0o600)
    for denied in (secret, version.parent / ".v1.names", version.parent / ".v1.data"):
        assert subprocess.run([*AS_NOBODY, "cat", denied], capture_output=True).returncode != 0
    assert subprocess.run([*AS_NOBODY, "cat", where / "many/00001"], capture_output=True).stdout == b"1"


def test_what_does_not_work_is_said_in_a_sentence(site, source, where, tmp_path):
    version = mounted(site, source, where)
    second = tmp_path / "second"
    second.mkdir()
    for words, expected in ((("mount", str(source), str(second)), "public/NAME/VERSION"),
                            (("mount", str(site.mount / "volumes"), str(second)), "public/NAME/VERSION"),
                            (("mount", str(version), str(tmp_path / "absent")), "make it first"),
                            (("mount", str(tmp_path / "absent"), str(second)), "absent"),
                            (("umount", str(second)), "not where")):
        refused = site.run("dataset", *words, check=False)
        assert refused.returncode == 1 and expected in refused.stderr and refused.stderr.count("\n") == 1
    with open(where / "holes", "rb"):
        busy = site.run("dataset", "umount", str(where), check=False)
        assert busy.returncode == 1 and "in use" in busy.stderr
    assert os.listdir(second) == []
