"""Files without a name, whiteouts and overlays, flags of files, and values at their limits: compared with a local file
system where it has them."""

import ctypes
import errno
import os
import pathlib
import signal
import stat
import subprocess
import sys
import time

import pytest

from conftest import Mount, wait_until
from local import (APPEND_ONLY, EXCHANGE, IMMUTABLE, KEEP_SIZE, NOREPLACE, PUNCH_HOLE, WHITEOUT, fallocate, get_flags,
                   link_descriptor, link_followed, outcome, rename2, same_on_both, set_flags)

MIB = 1 << 20


# ---- Files without a name ----


def test_a_file_without_a_name(site, tmp_path):
    def steps(directory):
        said = []
        fd = os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o640)
        said.append((os.fstat(fd).st_nlink, stat.S_IMODE(os.fstat(fd).st_mode), os.listdir(directory)))
        os.write(fd, b"some bytes")
        again = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
        said.append(os.read(again, 100))
        os.close(again)
        said.append(outcome(link_followed, f"/proc/self/fd/{fd}", directory / "one"))
        said.append((os.fstat(fd).st_nlink, (directory / "one").read_bytes()))
        said.append(outcome(link_descriptor, fd, directory / "two"))
        said.append(outcome(link_descriptor, fd, directory / "two"))
        os.write(fd, b" and more")
        os.close(fd)
        said.append((os.stat(directory / "two").st_nlink, (directory / "two").read_bytes()))
        os.unlink(directory / "one")
        said.append(os.stat(directory / "two").st_nlink)
        fd = os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_EXCL)
        said.append(outcome(link_descriptor, fd, directory / "three"))
        os.close(fd)
        said.append(outcome(os.open, directory, os.O_TMPFILE | os.O_RDONLY))
        said.append(outcome(os.open, directory / "none", os.O_TMPFILE | os.O_RDWR))
        said.append(sorted(os.listdir(directory)))
        return said

    same_on_both(site.volume() / "d", tmp_path / "d", steps)


def test_what_nobody_named_goes(make_site):
    site = make_site(separate=True)
    site.up()
    volume = site.volume()
    stored = lambda: site.json("status")["stored_bytes"]
    inodes = lambda: os.statvfs(volume).f_files - os.statvfs(volume).f_ffree
    before = inodes()
    fd = os.open(volume, os.O_TMPFILE | os.O_RDWR)
    os.write(fd, os.urandom(8 * MIB))
    os.fsync(fd)
    assert stored() >= 8 * MIB and inodes() == before
    os.close(fd)
    wait_until(lambda: stored() < MIB, seconds=60)
    kept = os.open(volume, os.O_TMPFILE | os.O_RDWR)
    os.write(kept, os.urandom(8 * MIB))
    os.fsync(kept)
    mount = site.roles()["mount"]
    site.kill("mount")  # the session's lease ends, and what it held goes
    outcome(os.close, kept)
    wait_until(lambda: os.listdir(volume) == [])
    assert site.roles()["mount"] != mount
    wait_until(lambda: stored() < MIB, seconds=120)
    assert site.fsck()["problems"] == []


# ---- Whiteouts and overlays ----


def test_whiteouts_as_on_a_local_file_system(site, tmp_path):
    def shape(directory):
        found = {}
        for path in sorted(directory.rglob("*")):
            status = path.lstat()
            number = status.st_rdev if stat.S_ISCHR(status.st_mode) else None
            found[str(path.relative_to(directory))] = (stat.S_IFMT(status.st_mode), number, status.st_uid)
        return found

    def steps(directory):
        (directory / "a").write_text("a")
        (directory / "b").write_text("b")
        (directory / "d").mkdir()
        said = []
        for old, new, flags in [("a", "c", WHITEOUT), ("b", "c", WHITEOUT | NOREPLACE), ("b", "c", WHITEOUT),
                                ("d", "e", WHITEOUT), ("c", "e/x", WHITEOUT | NOREPLACE), ("c", "e", WHITEOUT | EXCHANGE),
                                ("a", "e", EXCHANGE), ("e", "f", 8)]:
            said.append((outcome(rename2, directory / old, directory / new, flags), shape(directory)))
        os.unlink(directory / "b")
        os.mknod(directory / "w", stat.S_IFCHR, 0)
        os.mknod(directory / "w2", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        return [*said, shape(directory)]

    same_on_both(site.volume() / "d", tmp_path / "d", steps)


@pytest.fixture
def overlay(tmp_path):
    """overlay(lower, upper, work, options): where they show as one."""
    mounted = []

    def mount(lower, upper, work, options):
        where = tmp_path / f"overlay{len(mounted)}"
        for directory in (upper, work, where):
            directory.mkdir(exist_ok=True)
        options = f"lowerdir={lower},upperdir={upper},workdir={work}{options}"
        done = subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, where], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        mounted.append(where)
        return where

    yield mount
    for where in mounted:
        subprocess.run(["umount", "-l", where], capture_output=True)


def fill_lower(lower: pathlib.Path) -> None:
    lower.mkdir()
    for directory in ("kept", "gone", "opaque"):
        (lower / directory).mkdir()
        for n in range(5):
            (lower / directory / f"f{n}").write_text(f"{directory} {n}")
    (lower / "big").write_bytes(os.urandom(6 * MIB))
    os.symlink("big", lower / "link")


def change_overlay(top: pathlib.Path) -> None:
    (top / "kept/f0").write_text("changed")
    (top / "kept/f1").unlink()
    os.rename(top / "kept/f2", top / "kept/renamed")
    for path in (top / "gone").iterdir():
        path.unlink()
    (top / "gone").rmdir()
    for path in (top / "opaque").iterdir():
        path.unlink()
    (top / "opaque").rmdir()
    (top / "opaque").mkdir()
    (top / "opaque/new").write_text("new")
    with open(top / "big", "r+b") as file:
        file.seek(3 * MIB)
        file.write(b"in the middle")
    os.chmod(top / "kept/f3", 0o400)
    os.link(top / "kept/f4", top / "kept/linked")
    os.setxattr(top / "kept/f4", "user.colour", b"blue")


def tree(top: pathlib.Path) -> dict:
    found = {}
    for path in sorted(top.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else os.readlink(path) if path.is_symlink() else None
        xattrs = {name: os.getxattr(path, name) for name in os.listxattr(path, follow_symlinks=False)}
        found[str(path.relative_to(top))] = (status.st_mode, content if content is None or len(content) < 99 else hash(content), xattrs)
    return found


@pytest.mark.parametrize("layers,options", [("lower", ""), ("upper", ""), ("both", ""), ("both", ",userxattr"),
                                            ("both", ",redirect_dir=on,metacopy=on")])
def test_overlays_of_a_volume(site, overlay, layers, options):
    """The kernel's overlayfs with a volume below, above, or both: what it shows is what it shows of local directories,
    and is still there when it is mounted again."""
    volume = site.volume()
    local = pathlib.Path(site.directory) / "local"
    local.mkdir()
    fill_lower(local / "reference")
    lower = (local if layers == "upper" else volume) / "lower"
    subprocess.run(["cp", "-a", local / "reference", lower], check=True)
    place = local if layers == "lower" else volume
    expected = overlay(local / "reference", local / "expected-upper", local / "expected-work", options)
    top = overlay(lower, place / "upper", place / "work", options)
    change_overlay(expected)
    change_overlay(top)
    assert tree(top) == tree(expected)
    assert stat.S_ISCHR((place / "upper/gone").lstat().st_mode) and (place / "upper/gone").lstat().st_rdev == 0
    prefix = "user" if "userxattr" in options else "trusted"
    assert os.getxattr(place / "upper/opaque", f"{prefix}.overlay.opaque") == b"y"
    subprocess.run(["umount", top], check=True)
    assert tree(overlay(lower, place / "upper", place / "work", options)) == tree(expected)


# ---- Immutable and append-only ----


def test_flags_as_on_a_local_file_system(site, tmp_path):
    def all_that_changes(directory, name):
        path = directory / name
        said = {}
        for flags in (os.O_WRONLY, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_APPEND | os.O_TRUNC, os.O_RDWR | os.O_TRUNC):
            fd = outcome(os.open, path, flags)
            said["open", flags] = fd if isinstance(fd, str) else "opened"
            if isinstance(fd, int):
                said["write", flags] = outcome(os.write, fd, b"more")
                os.close(fd)
        said["truncate"] = outcome(os.truncate, path, 1)
        said["chmod"] = outcome(os.chmod, path, 0o600)
        said["chown"] = outcome(os.chown, path, 1, 1)
        said["touch"] = outcome(os.utime, path)
        said["utime"] = outcome(os.utime, path, (1, 1))
        said["xattr"] = outcome(os.setxattr, path, "user.a", b"")
        said["link"] = outcome(os.link, path, directory / "link")
        said["rename"] = outcome(os.rename, path, directory / "other")
        (directory / "new").touch()
        said["over"] = outcome(os.rename, directory / "new", path)
        said["unlink"] = outcome(os.unlink, path)
        said["read"] = outcome(lambda: path.read_bytes())
        return said

    def in_directory(directory):
        said = {"create": outcome(lambda: os.close(os.open(directory / "new", os.O_CREAT | os.O_EXCL)))}
        said["mkdir"] = outcome(os.mkdir, directory / "d2")
        said["rmdir"] = outcome(os.rmdir, directory / "d")
        said["unlink"] = outcome(os.unlink, directory / "f")
        said["rename"] = outcome(os.rename, directory / "f", directory / "g")
        said["tmpfile"] = outcome(lambda: os.close(os.open(directory, os.O_TMPFILE | os.O_RDWR)))
        said["write"] = outcome((directory / "f").write_text, "new content")
        said["chmod"] = outcome(os.chmod, directory, 0o700)
        said["list"] = sorted(os.listdir(directory))
        return said

    def steps(directory):
        said = []
        for flags in (IMMUTABLE, APPEND_ONLY, IMMUTABLE | APPEND_ONLY):
            path = directory / "f"
            path.write_bytes(b"content")
            held = os.open(path, os.O_RDWR)
            set_flags(path, flags)
            said.append(get_flags(path))
            said.append(all_that_changes(directory, "f"))
            said.append([outcome(fallocate, held, PUNCH_HOLE | KEEP_SIZE, 0, 1), outcome(os.ftruncate, held, 0)])
            os.close(held)
            set_flags(path, 0)
            for name in ("f", "new"):
                os.unlink(directory / name)
            inner = directory / "dir"
            (inner / "d").mkdir(parents=True)
            (inner / "f").write_text("f")
            set_flags(inner, flags)
            said.append((get_flags(inner), in_directory(inner)))
            set_flags(inner, 0)
            subprocess.run(["rm", "-r", inner], check=True)
        return said

    said = same_on_both(site.volume() / "d", tmp_path / "d", steps)
    assert "EPERM" in str(said)


def test_chattr_and_lsattr(site):
    path = site.volume() / "f"
    path.touch()
    subprocess.run(["chattr", "+ia", path], check=True)
    shown = subprocess.run(["lsattr", path], capture_output=True, text=True, check=True).stdout.split()[0]
    assert set(shown) - {"-"} == {"i", "a"}
    assert subprocess.run(["chattr", "+d", path], capture_output=True).returncode != 0
    unable = subprocess.run(["setpriv", "--bounding-set=-linux_immutable", "chattr", "-i", path], capture_output=True, text=True)
    assert unable.returncode != 0 and "not permitted" in unable.stderr
    assert outcome(os.unlink, path) == "EPERM"
    subprocess.run(["chattr", "-ia", path], check=True)
    os.unlink(path)


def test_flags_bind_the_other_mount(make_site):
    site = make_site()
    site.up()
    volume = site.volume()
    with Mount(site) as second:
        (volume / "f").write_text("old")
        wait_until((second / "f").is_file)
        fd = os.open(second / "f", os.O_RDWR)
        set_flags(volume / "f", IMMUTABLE)
        os.write(fd, b"new")  # taken, but it cannot be committed
        assert outcome(os.fsync, fd) == "EPERM"
        os.close(fd)
        assert (volume / "f").read_text() == "old"
        assert outcome(os.open, second / "f", os.O_WRONLY) == "EPERM"
        set_flags(volume / "f", 0)


# ---- Values at their limits ----


def test_times_from_long_ago_to_far_ahead(site):
    volume = site.volume()
    (volume / "f").touch()
    (volume / "d").mkdir()
    os.symlink("f", volume / "s")
    moments = [0, -1, -1_000_000_001, -(1 << 40) * 10**9 + 123_456_789, (1 << 31) * 10**9 + 1, 15_032_385_536 * 10**9 + 999_999_999,
               (1 << 40) * 10**9 + 1]
    for name in ("f", "d", "s"):
        for moment in moments:
            os.utime(volume / name, ns=(moment, -moment), follow_symlinks=False)
            found = (volume / name).lstat()
            assert (found.st_atime_ns, found.st_mtime_ns) == (moment, -moment), name


def test_atime_is_only_what_was_set(site):
    """As on a file system mounted with noatime: reading changes nothing."""
    path = site.volume() / "f"
    path.write_text("x")
    os.utime(path, ns=(10**18, 2 * 10**18))
    assert path.read_text() == "x"
    assert (path.stat().st_atime_ns, path.stat().st_mtime_ns) == (10**18, 2 * 10**18)
    path.write_text("y")
    assert path.stat().st_atime_ns == 10**18


def test_ids_and_names_of_any_kind(site, tmp_path):
    volume = site.volume()
    (volume / "f").touch()
    for uid, gid in [(1 << 31, (1 << 31) + 7), ((1 << 32) - 2, (1 << 32) - 3), (0, 0)]:
        os.chown(volume / "f", uid, gid)
        assert (os.stat(volume / "f").st_uid, os.stat(volume / "f").st_gid) == (uid, gid)
    names = [b"\xff" * 255, "ß".encode("latin-1") * 255, "字".encode() * 85, "👍".encode() * 63, b"\x01\x7f\n\t\\*?", b"-", b" "]

    def steps(directory):
        for name in names:
            path = os.fsencode(directory) + b"/" + name
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
            os.rename(path, os.fsencode(directory) + b"/moving")
            os.rename(os.fsencode(directory) + b"/moving", path)
        too_long = outcome(os.open, os.fsencode(directory) + b"/" + b"\xff" * 256, os.O_CREAT)
        return [too_long, sorted(os.listdir(os.fsencode(directory)))]

    same_on_both(volume / "names", tmp_path / "names", steps)


def test_fsync_of_a_directory(site):
    volume = site.volume()
    (volume / "d").mkdir()
    (volume / "d/f").write_text("kept")
    fd = os.open(volume / "d", os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.fdatasync(fd)
    os.close(fd)
    site.kill_all()
    subprocess.run(["umount", "-l", site.mount], capture_output=True)
    site.up()
    wait_until((volume / "d").is_dir)
    assert (volume / "d/f").read_text() == "kept"


def test_trusted_attributes_are_roots(site):
    path = site.volume() / "f"
    path.touch()
    path.chmod(0o644)
    os.setxattr(path, "trusted.overlay.opaque", b"y")
    os.setxattr(path, "user.a", b"1")
    assert sorted(os.listxattr(path)) == ["trusted.overlay.opaque", "user.a"]
    os.chmod(site.directory, 0o755)
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setresuid(1000, 1000, 1000)
        os.write(writing, repr(os.listxattr(path)).encode())
        os._exit(0)
    assert os.read(reading, 1000) == b"['user.a']"
    os.wait()


def test_signals_that_are_caught_cut_no_call_short(site):
    """As on a local file system, where only a deadly signal does. Python would hide it, so C is asked."""
    volume = site.volume()
    libc, missed = ctypes.CDLL(None, use_errno=True), []

    def call(name, *arguments):
        result = getattr(libc, name)(*arguments)
        if result < 0 and ctypes.get_errno() == errno.EINTR:
            missed.append(name)
        return result

    def work(directory: pathlib.Path):
        a, b, data = bytes(directory / "a"), bytes(directory / "b"), os.urandom(300_000)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            fd = call("open", a, os.O_RDWR | os.O_CREAT, 0o644)
            call("pwrite", fd, data, len(data), ctypes.c_long(0))
            call("fallocate", fd, 3, ctypes.c_long(5000), ctypes.c_long(100_000))
            call("fsync", fd)
            call("ftruncate", fd, ctypes.c_long(200_000))
            call("close", fd)
            call("rename", a, b)
            call("mkdir", a, 0o755)
            call("rmdir", a)
            call("unlink", b)

    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0007)
    try:
        work(volume)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert missed == []


@pytest.mark.parametrize("caught", [False, True])
def test_who_waits_for_a_server_can_be_ended(make_site, caught):
    site = make_site(separate=True)
    site.up()
    volume = site.volume()
    (volume / "d").mkdir()
    meta = site.roles()["meta"]
    os.kill(meta, signal.SIGSTOP)
    try:
        code = "import os,signal,sys\nsignal.signal(signal.SIGINT, signal.default_int_handler if sys.argv[2] == 'True' else signal.SIG_DFL)\n" \
               "print('begins', flush=True)\nos.mkdir(sys.argv[1])"
        child = subprocess.Popen([sys.executable, "-c", code, volume / "d/e", str(caught)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert child.stdout.readline() == b"begins\n"
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        said = child.communicate(timeout=30)[1]
        assert child.returncode == -signal.SIGINT, said
        assert (b"KeyboardInterrupt" in said) == caught
    finally:
        os.kill(meta, signal.SIGCONT)
